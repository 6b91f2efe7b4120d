-- A store in PostgreSQL. Events are append-only, numbered per user, and partitioned by user.
CREATE SCHEMA IF NOT EXISTS treeward;
CREATE TABLE treeward.version AS SELECT 3 AS number;
CREATE TABLE treeward.metadata (key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE treeward.users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name bytea NOT NULL UNIQUE, events integer NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE TABLE treeward.events (
    user_id bigint NOT NULL, seq integer NOT NULL, kind smallint NOT NULL, nonce bigint NOT NULL, record bytea NOT NULL,
    PRIMARY KEY (user_id, seq)
) PARTITION BY HASH (user_id);
DO $$ BEGIN
    FOR i IN 0..15 LOOP
        EXECUTE format('CREATE TABLE treeward.events_%s PARTITION OF treeward.events '
                       'FOR VALUES WITH (MODULUS 16, REMAINDER %s)', i, i);
    END LOOP;
END $$;
-- A decision has one reward, also if several callers report one at the same moment.
CREATE UNIQUE INDEX one_reward ON treeward.events (user_id, nonce) WHERE kind IN (1, 3) AND nonce <> 0;
CREATE INDEX rewards_of ON treeward.events (user_id, nonce) WHERE kind IN (1, 2, 3, 4);

-- Add one event per user, in one step; users come in the order of their names, so that callers cannot deadlock.
CREATE FUNCTION treeward.append(
    names bytea[], kinds smallint[], nonces bigint[], records bytea[], known integer[], at_epoch bigint, later boolean,
    OUT added boolean[], OUT epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE who bigint; have integer; fresh boolean;
BEGIN
    IF later THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT convert_from(value, 'UTF8')::bigint INTO epoch FROM treeward.metadata WHERE key = 'epoch' FOR SHARE;
    IF at_epoch IS NOT NULL AND at_epoch <> epoch THEN
        added := array_fill(false, ARRAY[cardinality(names)]);
        RETURN;
    END IF;
    added := '{}';
    FOR i IN 1..cardinality(names) LOOP
        SELECT id, events INTO who, have FROM treeward.users WHERE name = names[i] FOR UPDATE;
        IF NOT FOUND THEN
            INSERT INTO treeward.users (name) VALUES (names[i]) ON CONFLICT (name) DO NOTHING;
            SELECT id, events INTO who, have FROM treeward.users WHERE name = names[i] FOR UPDATE;
        END IF;
        fresh := true;
        IF kinds[i] IN (1, 3) AND nonces[i] <> 0 THEN
            fresh := NOT EXISTS (
                SELECT 1 FROM treeward.events
                WHERE user_id = who AND nonce = nonces[i] AND kind IN (1, 3) AND nonce <> 0
            );
        ELSIF kinds[i] IN (2, 4) AND known IS NOT NULL THEN
            fresh := known[i] = (
                SELECT count(*) FROM treeward.events WHERE user_id = who AND nonce = nonces[i] AND kind IN (1, 2, 3, 4)
            );
        END IF;
        IF fresh THEN
            INSERT INTO treeward.events VALUES (who, have + 1, kinds[i], nonces[i], records[i]);
            UPDATE treeward.users SET events = have + 1 WHERE id = who;
        END IF;
        added := added || fresh;
    END LOOP;
END $$;

-- Users' events after the first `seen`, and the epoch, at one moment.
CREATE FUNCTION treeward.read(names bytea[], seen integer[])
RETURNS TABLE (place bigint, records bytea, epoch bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN  -- plpgsql keeps its plans: planning over all partitions takes longer than the query itself
    RETURN QUERY SELECT asked.place,
        CASE WHEN who.events > asked.seen THEN
            (SELECT string_agg(event.record, ''::bytea ORDER BY event.seq) FROM treeward.events AS event
             WHERE event.user_id = who.id AND event.seq > asked.seen)
        END,
        (SELECT convert_from(value, 'UTF8')::bigint FROM treeward.metadata WHERE key = 'epoch')
    FROM unnest(names, seen) WITH ORDINALITY AS asked(name, seen, place)
    LEFT JOIN treeward.users AS who ON who.name = asked.name;
END $$;

-- The rewards and changes of decisions, and the epoch.
CREATE FUNCTION treeward.rewards(names bytea[], nonces bigint[])
RETURNS TABLE (place bigint, records bytea, epoch bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT asked.place,
        (SELECT string_agg(event.record, ''::bytea ORDER BY event.seq) FROM treeward.events AS event
         WHERE event.user_id = who.id AND event.nonce = asked.nonce AND event.kind IN (1, 2, 3, 4)),
        (SELECT convert_from(value, 'UTF8')::bigint FROM treeward.metadata WHERE key = 'epoch')
    FROM unnest(names, nonces) WITH ORDINALITY AS asked(name, nonce, place)
    LEFT JOIN treeward.users AS who ON who.name = asked.name;
END $$;
