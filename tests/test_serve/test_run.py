"""The process: its command line, its signals, and an end under load that loses no accepted request."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import fields

import httpx
import pytest

from poscod.cli import main
from poscod.serve import Settings
from poscod.serve._run import bind

ROWS = [[0.0, 0.0], [1.5, 4.515625]]


def test_sigterm_under_load_loses_no_accepted_request(launch, model_file, tmp_path):
    server = launch(str(model_file), "--log", f"sqlite:///{tmp_path}/d.db", "--state", str(tmp_path / "state.json"))
    answered: list[str] = []
    problems: list[str] = []
    stop = threading.Event()

    def ask(worker: int) -> None:
        """Send until nobody listens; a request is lost if its answer began and did not end, or if it was accepted and not answered."""
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for i in range(100_000):
                if stop.is_set():
                    return
                name = f"w{worker}-{i}"
                try:
                    answer = client.post("/v1/decide", json={"rows": ROWS}, headers={"x-request-id": name})
                except (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    return  # nobody accepted it; the log line by line says whether that is true
                if answer.status_code != 200 or len(answer.json()["decisions"]["score"]) != 2:
                    problems.append(answer.text)
                answered.append(answer.headers["x-request-id"])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    server.process.send_signal(signal.SIGTERM)
    code = server.wait()
    for thread in threads:
        thread.join(60)
    stop.set()
    assert code == 0
    assert not problems
    lines = [json.loads(line) for line in server.lines().splitlines()]
    accepted = [line["request_id"] for line in lines if line["event"] == "request"]
    assert len(answered) > 50
    assert sorted(accepted) == sorted(answered)
    assert [line["event"] for line in lines if line["event"] != "request"] == [
        "started",
        "draining",
        "log-closed",
        "stopped",
    ]
    connection = sqlite3.connect(tmp_path / "d.db")
    logged = {row[0] for row in connection.execute("SELECT request_id FROM poscod_decisions")}
    assert logged == set(answered)
    assert connection.execute("SELECT count(*) FROM poscod_decisions").fetchone()[0] == 2 * len(answered)
    connection.close()
    [state] = tmp_path.glob("state-*.json")
    assert json.loads(state.read_text())["sha256"] == lines[0]["model"]
    assert not any("decisions" in line or "rows_sent" in line for line in lines)
    assert "4.515625" not in server.lines()  # no payload in the log


def test_sighup_reads_the_model_again_and_a_token_comes_from_the_environment(
    launch, model_file, other_file, tmp_path, eventually
):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    token = "0123456789abcdef-token"
    server = launch(str(path), "--reload-seconds", "0", "--quiet", environment={"POSCOD_TOKEN": token})
    client = httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"}, timeout=60)
    assert httpx.get(server.url + "/v1/model").status_code == 401
    first = client.get("/v1/model").json()["sha256"]
    shutil.copy(other_file, path)
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: client.get("/v1/model").json()["sha256"] != first)
    client.close()
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0
    lines = server.lines()
    assert token not in lines
    assert '"event": "request"' not in lines
    assert '"event": "model"' in lines


def run(capsys, *arguments: str) -> str:
    """Run the command line in this process; it must fail with exit code 2 and one sentence."""
    assert main(["serve", *arguments]) == 2
    out, err = capsys.readouterr()
    sentences = [line for line in err.splitlines() if not line.startswith("{")]
    assert out == ""
    assert len(sentences) == 1
    assert sentences[0].startswith("poscod: error: ")
    return sentences[0]


def test_bad_input_is_one_sentence_and_exit_code_2(capsys, model_file, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "poscod.serve._server.Server.run", lambda *_, **__: pytest.fail("the service would have started")
    )
    (tmp_path / "text").write_text("x")
    model = str(model_file)
    assert "o such file" in run(capsys, str(tmp_path / "nothing"))
    assert "not a poscod model" in run(capsys, str(tmp_path / "text"), "--port", "0")
    assert "SQLAlchemy refuses" in run(capsys, model, "--port", "0", "--log", "nothing://x")
    assert "--max-rows must be a whole number >= 1, got 0." in run(capsys, model, "--max-rows", "0")
    assert "window" in run(capsys, model, "--port", "0", "--window", "soon")
    assert "65535" in run(capsys, model, "--port", "70000")
    assert "o such file" in run(capsys, model, "--token-file", str(tmp_path / "nothing"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "in use" in run(capsys, model, "--port", str(taken.getsockname()[1]))


def test_a_missing_package_is_one_sentence(capsys, model_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert "pip install '.[serve]'" in run(capsys, str(model_file), "--port", "0")


def test_answers_are_not_held_back_by_nagles_algorithm():
    """Otherwise an answer in two parts waits 40 ms."""
    with bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_help_names_every_setting_with_its_words_and_default(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for option in ("--host", "--port", "--trust", "--token-file", "127.0.0.1", "--workers"):
        assert (option in text) == (option != "--workers"), option
    words = " ".join(text.split())
    for item in fields(Settings):
        names = {
            "trusted": "--trust",
            "tokens": "--token-file",
            "open_metrics": "--protect-metrics",
            "state_file": "--state",
        }
        assert names.get(item.name, "--" + item.name.replace("_", "-")) in text, item.name
        if isinstance(item.default, (int, float)) and not isinstance(item.default, bool):
            assert f"(default: {item.default})" in words, item.name
    assert "largest batch; larger ones get 413 (default: 10000)" in words
    assert "--token " not in text  # a token on a command line is seen by everybody on the machine


def test_load_for_a_few_seconds_without_an_error(model_file, serve):
    """The load generator of the benchmarks, in a second process, at even intervals."""
    root = __import__("pathlib").Path(__file__).resolve().parents[2]
    running = serve(model_file)
    command = [
        sys.executable,
        "-m",
        "benchmarks.serve_load",
        "client",
        str(running.port),
        "/v1/decide",
        "json",
        "8",
        "3",
        "60",
    ]
    done = subprocess.run(
        command,
        input=json.dumps({"rows": ROWS}).encode(),
        capture_output=True,
        check=True,
        timeout=120,
        cwd=root,
        env=dict(os.environ),
    )
    report = json.loads(done.stdout)
    assert report["errors"] == 0
    assert report["n"] == 180
    assert running.metric("poscod_decisions_total") == 360
