#!/bin/sh
# The service from a shell: generate a catalogue, serve it, ask for items, send feedback. Run it: sh examples/serve.sh
set -e
folder=$(mktemp -d)
trap 'kill $service 2>/dev/null; wait $service 2>/dev/null; rm -rf "$folder"' EXIT
treeward demo --items 2000 --users 5 --rounds 5 --visits 5 -o "$folder/demo" > /dev/null
treeward serve "$folder/demo/items" --store "$folder/events.db" --port 8765 --admin-port 8766 > "$folder/log" 2>&1 &
service=$!
until curl -sf localhost:8765/readyz > /dev/null; do sleep 0.2; done

echo "Two items for ada:"
answer=$(curl -s localhost:8765/v1/recommend -H 'content-type: application/json' -d '{"user": "ada", "n": 2}')
echo "$answer"
id=$(echo "$answer" | sed 's/.*"decision_id":"\([^"]*\)".*/\1/')

echo "She liked the last one:"
curl -s localhost:8765/v1/feedback -H 'content-type: application/json' -d "{\"decision_id\": \"$id\", \"reward\": 1}"
echo
echo "What is known about her:"
curl -s localhost:8765/v1/users/ada
echo
