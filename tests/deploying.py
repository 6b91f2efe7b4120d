"""What needs other programs to check the files that people deploy with: `make deploy`.

`python -m tests.deploying` renders the chart into deploy/kubernetes.yaml; pytest compares and checks.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import yaml

from tests.serving import TREEWARD, serving
from tests.test_deploy import CHART, DEPLOY, ROOT, chart_digest
from tests.waiting import wait_until

TOOLS = ROOT / ".deploy" / "bin"
HELM = os.environ.get("HELM", "helm")
HEAD = """\
# The chart with its defaults, for clusters without Helm. Checked against the schemas of Kubernetes (`make deploy`);
# never run on a cluster. Rendered from chart {digest}
"""
VERSIONS = ("1.27", "1.30", "1.33", "1.37")
EVERYTHING = [
    "--set", "autoscaling.enabled=true", "--set", "monitoring.enabled=true", "--set", "shop.snapshots=true",
    "--set", "monitoring.labels.release=prometheus", "--set", "nodeSelector.disk=ssd",
    "--set", "tolerations[0].operator=Exists",
]  # fmt: skip


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def needed(program, package):
    """Fail, rather than skip, where a program is missing: this target is for people who have them."""
    if shutil.which(program) is None:
        pytest.fail(f"{program} is missing ({package})")
    return program


def rendered(*options):
    return run(needed(HELM, "https://helm.sh; or HELM=/path/to/helm"), "template", "treeward", CHART, *options)


def manifests():
    return HEAD.format(digest=chart_digest()) + rendered()


def test_the_chart_is_clean_and_the_manifests_are_its_defaults():
    run(needed(HELM, "https://helm.sh; or HELM=/path/to/helm"), "lint", "--strict", CHART)
    assert (DEPLOY / "kubernetes.yaml").read_text() == manifests(), "python -m tests.deploying renders them"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [[], EVERYTHING], ids=["default", "everything"])
def test_what_the_chart_renders_follows_the_schemas_of_kubernetes(tmp_path, version, options):
    made = [one for one in yaml.safe_load_all(rendered(*options)) if one]
    own = [one for one in made if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    assert len(own) == 4 + bool(options)
    assert len(made) == 4 + 3 * bool(options)
    (tmp_path / "made.yaml").write_text(yaml.safe_dump_all(own))
    check = [TOOLS / "kubernetes-validate", "--strict", "--kubernetes-version", version]
    run(*check, tmp_path / "made.yaml")
    [deployment] = [one for one in own if one["kind"] == "Deployment"]
    deployment["spec"]["replica"] = 2
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(deployment))
    assert subprocess.run([*check, tmp_path / "wrong.yaml"], capture_output=True, check=False).returncode != 0


def test_the_monitor_sends_the_key_and_the_alerts_are_those_of_prometheus():
    made = {one["kind"]: one for one in yaml.safe_load_all(rendered(*EVERYTHING)) if one}
    [endpoint] = made["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "treeward", "key": "prometheus-key"}}
    assert endpoint["port"] in {one["name"] for one in made["Service"]["spec"]["ports"]}
    labels = made["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert labels.items() <= made["Service"]["metadata"]["labels"].items()
    assert made["PrometheusRule"]["spec"] == yaml.safe_load((CHART / "prometheus-rules.yml").read_text())
    assert made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]
    assert "replicas" not in made["Deployment"]["spec"]


def test_compose_follows_its_specification(tmp_path):
    check = [TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    run(*check, ROOT / "compose.yaml")
    (tmp_path / "compose.yaml").write_text((ROOT / "compose.yaml").read_text().replace("restart:", "restarts:"))
    assert subprocess.run([*check, tmp_path / "compose.yaml"], capture_output=True, check=False).returncode != 0


def test_the_unit_is_sound_and_has_few_rights(tmp_path):
    analyze = needed("systemd-analyze", "Debian: apt-get install systemd")
    unit = tmp_path / "treeward.service"
    unit.write_text((DEPLOY / "treeward.service").read_text().replace("/opt/treeward/bin/treeward", TREEWARD))
    run(analyze, "verify", "--man=no", unit)
    run(analyze, "security", "--offline=true", "--threshold=20", unit)  # 2.0 of 10


def test_nginx_accepts_its_configuration(tmp_path):
    program = needed("nginx", "Debian: apt-get install nginx-light")
    run(program, "-t", "-q", "-p", tmp_path, "-c", DEPLOY / "nginx.conf", "-g", f"pid {tmp_path}/pid;")


def test_alerts_are_raised_when_they_should_be(tmp_path):
    promtool = needed("promtool", "Debian: apt-get install prometheus")
    shutil.copy(CHART / "prometheus-rules.yml", tmp_path)
    shutil.copy(ROOT / "tests" / "prometheus-rules-test.yml", tmp_path)
    run(promtool, "check", "rules", tmp_path / "prometheus-rules.yml")
    run(promtool, "test", "rules", tmp_path / "prometheus-rules-test.yml")


def ask(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def test_prometheus_reads_the_metrics_with_a_key(tmp_path):
    """A real Prometheus, with the configuration of compose.yaml but for the address and the place of the key."""
    prometheus = needed("prometheus", "Debian: apt-get install prometheus")
    np.save(tmp_path / "items.npy", np.random.default_rng(0).standard_normal((300, 8), dtype=np.float32))
    told = run(TREEWARD, "key", "new", "prometheus", "--role", "read", "--out", tmp_path / "key")
    (tmp_path / "settings.toml").write_text(told.partition("\n")[2])
    shutil.copy(CHART / "prometheus-rules.yml", tmp_path)
    with serving(tmp_path, tmp_path / "items.npy", "--config", tmp_path / "settings.toml") as running:
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        [job] = config["scrape_configs"]
        job["authorization"]["credentials_file"] = str(tmp_path / "key")
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": [running.url.removeprefix("http://")]}]
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        run("promtool", "check", "config", tmp_path / "prometheus.yml")
        address = "127.0.0.1:19090"
        words = [
            prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
        ]  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                [target] = wait_until(
                    lambda: [
                        one
                        for one in (ask(f"http://{address}/api/v1/targets") or {"activeTargets": []})["activeTargets"]
                        if one["health"] != "unknown"
                    ],
                    "a target was scraped",
                )
                assert target["health"] == "up", target["lastError"]
                [sample] = wait_until(
                    lambda: (ask(f"http://{address}/api/v1/query?query=treeward_store_ok") or {"result": []})["result"],
                    "there is a sample",
                )
                assert sample["metric"]["job"] == "treeward"
                assert sample["value"][1] == "1"
                wait_until(lambda: ask(f"http://{address}/api/v1/rules")["groups"], "there are rules")
                wait_until(
                    lambda: (
                        {one["health"] for one in ask(f"http://{address}/api/v1/rules")["groups"][0]["rules"]} == {"ok"}
                    ),
                    "every rule was evaluated",
                )
                wait_until(lambda: not ask(f"http://{address}/api/v1/alerts")["alerts"], "no alert is pending")
            finally:
                process.terminate()


if __name__ == "__main__":
    (DEPLOY / "kubernetes.yaml").write_text(manifests())
    sys.stdout.write("Wrote deploy/kubernetes.yaml\n")
