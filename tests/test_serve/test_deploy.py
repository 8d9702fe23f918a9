"""The files for Prometheus and Grafana name metrics that a service has, and alerts are raised by what they are about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from test_serve.conftest import WORLD

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = re.compile(r"poscod_[a-z_]+")


def expressions():
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = re.findall(r"expr: (.*)", (DEPLOY / "prometheus-alerts.yml").read_text())
    return panels + rules + [v["definition"] for v in board["templating"]["list"] if "definition" in v]


def test_every_metric_that_is_asked_for_is_there(serve, model_file, eventually, tmp_path):
    running = serve(model_file, log=f"sqlite:///{tmp_path}/log.db")
    running.decide(WORLD.sample_mixture(60, pi=0.3, random_state=5)[0].tolist())
    eventually(lambda: "poscod_error_estimate" in running.client.get("/metrics").text)
    exposed = set(NAME.findall(running.client.get("/metrics").text))
    asked = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(asked) >= 10
    assert asked <= exposed


def test_panels_do_not_lie_over_each_other_and_read_the_chosen_source():
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    taken, ids = set(), set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        taken |= cells
        ids.add(panel["id"])
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert len(ids) == len(board["panels"])


CASES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'poscod_finding{{code="PSC014", severity="error", instance="a"}}'
        values: '0 0 1 1 1'
      - series: 'poscod_finding{{code="PSC007", severity="warning", instance="a"}}'
        values: '1x90'
      - series: 'poscod_log_dropped_total{{instance="a"}}'
        values: '0 0 5 5 5'
    alert_rule_test:
      - eval_time: 1m
        alertname: PoscodAlarm
        exp_alerts: []
      - eval_time: 3m
        alertname: PoscodAlarm
        exp_alerts:
          - exp_labels: {{code: PSC014, severity: critical, instance: a}}
            exp_annotations:
              summary: "a: PSC014 is active"
              description: "The monitor has found what PSC014 stands for: see /v1/monitor or the dashboard, and docs/monitoring.md."
      - eval_time: 30m
        alertname: PoscodWarning
        exp_alerts: []
      - eval_time: 61m
        alertname: PoscodWarning
        exp_alerts:
          - exp_labels: {{code: PSC007, severity: warning, instance: a}}
            exp_annotations:
              summary: "a: PSC007 is active"
              description: "Numbers of the monitor may be off, or something has changed: see /v1/monitor and docs/monitoring.md."
      - eval_time: 4m
        alertname: PoscodDecisionsNotLogged
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a}}
            exp_annotations:
              summary: "a: decisions are lost from the log"
              description: "The decision log found no room in its queue. Look at the database or the disk behind it."
"""


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (apt-get install prometheus), which is not here"
)
def test_alerts_are_raised_by_what_they_are_about(tmp_path):
    (tmp_path / "cases.yml").write_text(CASES.format(rules=json.dumps(str(DEPLOY / "prometheus-alerts.yml"))))
    done = subprocess.run(
        ["promtool", "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
