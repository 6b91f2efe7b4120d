"""The files that people deploy with: what they name exists, and the program accepts what they say.

What needs other programs is checked by `make deploy` (tests/deploying.py) and `make image` (tests/image.py).
"""

import hashlib
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from tests.commands import run as cli
from tests.serving import serving
from treeward.cli.app import app
from treeward.serve.settings import PREFIX, Settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "treeward"
KEY = "k" * 40


def chart_digest():
    """Return a digest of the chart, which names the version that deploy/kubernetes.yaml was rendered from."""
    made = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        made.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return made.hexdigest()[:16]


def steps(text):
    """Return the steps of a Dockerfile as pairs of word and rest."""
    lines = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in lines.splitlines() if line.strip()]


def accepted(words):
    """Have the command line parse a command, without running it."""
    assert words[0] == "treeward"
    command = get_command(app)
    context = command.make_context("treeward", list(words[1:]), resilient_parsing=False)
    name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    return found.make_context(name, rest, parent=context).params


def checked(tmp_path, items, text, files, env=None):
    """Run `treeward serve --check` with settings whose paths are moved here."""
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        text = re.sub(rf'"[^"]*/{name}"', f'"{tmp_path / name}"', text)
    (tmp_path / "shop").mkdir(exist_ok=True)
    text = text.replace('"/shop/items"', f'"{items}"')
    (tmp_path / "settings.toml").write_text(text)
    return cli("serve", "--config", tmp_path / "settings.toml", "--check")


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    import numpy as np

    path = tmp_path_factory.mktemp("items") / "items.npy"
    np.save(path, np.random.default_rng(0).standard_normal((300, 8), dtype=np.float32))
    return path


def test_the_dockerfile_names_what_exists_and_starts_a_valid_command():
    made = steps((ROOT / "Dockerfile").read_text())
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    for word, rest in made:
        if word == "COPY" and not rest.startswith("--from"):
            for name in rest.split()[:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name}" in ignored, f"{name} is not sent to the builder"
    [command] = [json.loads(rest) for word, rest in made if word == "CMD"]
    assert accepted(command)["config"] == Path("/config/settings.toml")
    [user] = [rest for word, rest in made if word == "USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a number: Kubernetes cannot tell whether a name is root"
    [health] = [rest for word, rest in made if word == "HEALTHCHECK"]
    words = json.loads(health.partition("CMD ")[2])
    compile(words[-1], "HEALTHCHECK", "exec")
    assert "/livez" in words[-1]
    [install] = [shlex.split(rest) for word, rest in made if word == "RUN" and "pip install" in rest]
    assert install[install.index("-c") + 1] == "constraints.txt"


def compose():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_compose_mounts_files_that_exist_and_secrets_that_it_names():
    made = compose()
    for name, service in made["services"].items():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source == "./shop":
                continue  # the reader's own
            if source.startswith("."):
                assert (ROOT / source).is_file(), f"{name}: {source}"
            else:
                assert source in made["volumes"], f"{name}: {source}"
        assert set(service.get("secrets", ())) <= set(made["secrets"])
        assert all(one.startswith("127.0.0.1:") for one in service.get("ports", ()))
    guide = (ROOT / "docs" / "guides" / "production.md").read_text()
    assert all(name in guide for name in made["secrets"])


def test_the_settings_of_compose_are_accepted_and_name_its_secrets(tmp_path, items):
    text = (DEPLOY / "settings.toml").read_text()
    given = tomllib.loads(text)
    service = compose()["services"]["treeward"]
    files = {Path(one["file"]).name for one in given["keys"]} | {Path(given["store_password_file"]).name}
    assert files == set(service["secrets"])
    text = text.replace("@database/", "@127.0.0.1:1/")  # no database there
    assert "sound: beam with linucb" in checked(tmp_path, items, text, {name: KEY for name in files})


def documents():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def of_kind(kind):
    [found] = [one for one in documents() if one["kind"] == kind]
    return found


def test_the_manifests_are_those_of_the_present_chart():
    head = (DEPLOY / "kubernetes.yaml").read_text().splitlines()
    assert any(line.endswith(f"chart {chart_digest()}") for line in head[:5]), "the chart has changed: run make deploy"


def test_the_manifests_fit_together(tmp_path, items):
    text = of_kind("ConfigMap")["data"]["settings.toml"]
    given = tomllib.loads(text)
    pod = of_kind("Deployment")["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert accepted(container["command"])["config"] == Path("/config/settings.toml")
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert set(mounts.values()) == {one["name"] for one in pod["spec"]["volumes"]}
    secrets = [one["file"] for one in given["keys"]] + [given["store_password_file"]]
    assert {str(Path(path).parent) for path in secrets} == {"/secrets"} <= set(mounts)
    [port] = container["ports"]
    assert port["containerPort"] == given["port"]
    for kind in ("Service", "PodDisruptionBudget", "Deployment"):
        selected = of_kind(kind)["spec"]["selector"]
        assert (selected.get("matchLabels") or selected).items() <= pod["metadata"]["labels"].items()
    assert all(not one["name"].startswith(PREFIX) for one in container.get("env", ()))
    text = text.replace("@database/", "@127.0.0.1:1/")
    assert "sound: beam with linucb" in checked(tmp_path, items, text, {Path(path).name: KEY for path in secrets})


def test_the_pods_have_few_rights():
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == tuple(map(int, user.groups()))
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] > 25, "5 s until nodes know, then 20 s to drain"


def test_values_name_settings_that_exist():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values["settings"]) <= set(Settings.__dataclass_fields__)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == values["image"]["tag"]


def test_the_unit_starts_a_valid_command_and_says_where_kernels_are_kept():
    lines = [line.partition("=")[::2] for line in (DEPLOY / "treeward.service").read_text().splitlines() if "=" in line]
    told = {name: value for name, value in lines if not name.startswith("#")}
    words = shlex.split(told["ExecStart"])
    assert accepted([Path(words[0]).name, *words[1:]])["config"] == Path("/etc/treeward/settings.toml")
    assert told["CacheDirectory"] == told["StateDirectory"] == "treeward"
    assert told["Environment"] == "NUMBA_CACHE_DIR=%C/treeward"
    assert "MemoryDenyWriteExecute" not in told, "kernels are compiled while the service runs"
    assert int(told["TimeoutStopSec"]) > 25


def expressions():
    """Return every query of the dashboard and of the rules, with where it is."""
    board = json.loads((DEPLOY / "grafana" / "treeward.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]
    for group in yaml.safe_load((CHART / "prometheus-rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


def test_every_query_names_metrics_routes_and_groups_that_the_service_exports(tmp_path, items):
    with serving(tmp_path, items) as running:
        import httpx

        shown = httpx.post(f"{running.url}/v1/recommend", json={"user": "ada"}).json()["items"]
        assert httpx.post(
            f"{running.url}/v1/feedback", json={"decision_id": shown[0]["decision_id"], "reward": 1}
        ).is_success
        text = httpx.get(f"{running.url}/metrics").text
    exported = set(re.findall(r"^(treeward_\w+)", text, re.MULTILINE)) | {"up"}
    routes = set(re.findall(r'route="([^"]+)"', text))
    found = set()
    for where, query in expressions():
        named = set(re.findall(r"\b(treeward_\w+|up)\b(?=[{)\s,]|\[|$)", query)) - {"treeward"}
        assert named, where
        assert named <= exported, f"{where}: {named - exported}"
        assert set(re.findall(r'route="([^"]+)"', query)) <= routes, where
        found |= named
    shown = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in found}
    unseen = {
        re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported if not name.endswith("_created")
    } - shown
    assert unseen == {"treeward_crowd_edition"}, "a metric that nobody looks at"


def test_panels_have_numbers_and_places_of_their_own():
    panels = json.loads((DEPLOY / "grafana" / "treeward.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    names = {
        variable["name"]
        for variable in json.loads((DEPLOY / "grafana" / "treeward.json").read_text())["templating"]["list"]
    }
    assert {name for panel in panels for name in re.findall(r"\$\{?([a-z]+)\}?", json.dumps(panel))} <= names


def test_alerts_have_names_severities_and_summaries():
    [group] = yaml.safe_load((CHART / "prometheus-rules.yml").read_text())["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert config["rule_files"] == ["prometheus-rules.yml"]
    [job] = config["scrape_configs"]
    assert (
        job["authorization"]["credentials_file"].removeprefix("/run/secrets/")
        in compose()["services"]["prometheus"]["secrets"]
    )
