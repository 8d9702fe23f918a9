"""MLflow's own package, a store in a folder: logged, loaded and registered nowhere else, and no pickle in what was written."""

from __future__ import annotations

import subprocess
import sys

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier

from poscod import POSCOD, Activations
from poscod.backends.mlflow import log_model, save_model
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid

RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(RNG.normal(size=(120, 2)) + 2.0 * (np.arange(120) % 2)[:, None], columns=["size", "width"])
LABELS = np.array(["ant", "bee"])[np.arange(120) % 2]
TRAFFIC = pd.concat([FRAME.iloc[::2] + 0.1, FRAME.iloc[:20] + 6.0], ignore_index=True)
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow warns of what is to change in it


def fitted(X, y, traffic, **parameters):
    return POSCOD(ratio=CorrectedSigmoid("paper", l2=1e-2), calibration=0.5, random_state=0, **parameters).fit(
        X, y, X_unlabeled=traffic
    )


@pytest.fixture(scope="module")
def model():
    return fitted(FRAME, LABELS, TRAFFIC)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())


def test_a_logged_model_decides_the_same_in_a_new_process(model, tmp_path):
    with mlflow.start_run():
        info = log_model(model, input_example=FRAME.head(3))
    folder = tmp_path / "read"
    mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(folder))
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle")]
    assert [name["name"] for name in info.signature.inputs.to_dict()] == ["size", "width"]
    assert "prediction" in [name["name"] for name in info.signature.outputs.to_dict()]
    assert list(folder.rglob("input_example.json"))
    TRAFFIC.to_csv(tmp_path / "traffic.csv", index=False)
    place = next(folder.rglob("MLmodel")).parent
    code = (
        "import sys, mlflow, pandas as pd\n"
        "mlflow.pyfunc.load_model(sys.argv[1]).predict(pd.read_csv(sys.argv[2])).to_csv(sys.argv[3], index=False)"
    )
    words = [sys.executable, "-c", code, str(place), str(tmp_path / "traffic.csv"), str(tmp_path / "out.csv")]
    subprocess.run(words, check=True, capture_output=True)
    got, expected = pd.read_csv(tmp_path / "out.csv"), model.decide(pd.read_csv(tmp_path / "traffic.csv"))
    assert 0 < got["accept"].sum() < len(got)
    assert got["prediction"].tolist() == expected.predictions(model.reject_label).tolist()
    np.testing.assert_allclose(got["score"], expected.score, rtol=1e-12)


def test_matrices_and_networks(tmp_path):
    X, traffic = FRAME.to_numpy(), TRAFFIC.to_numpy()
    for name, own, rows in (
        ("table", fitted(X, LABELS, traffic), traffic),
        (
            "network",
            fitted(Activations(X, X * 2), np.arange(120) % 2, Activations(traffic, traffic * 2)),
            np.column_stack([traffic, traffic * 2]),
        ),
    ):
        save_model(own, tmp_path / name)
        back = mlflow.pyfunc.load_model(str(tmp_path / name))
        asked = Activations(traffic, traffic * 2) if name == "network" else rows
        np.testing.assert_array_equal(back.predict(rows)["score"], own.decide(asked).score)
    with pytest.raises(
        InvalidInputError, match=r"rows must have 4 columns, features and then logits, got shape \(80, 2\)"
    ):
        back.predict(traffic)


def test_what_could_not_be_read_is_not_written(model, tmp_path):
    with pytest.raises(InvalidInputError, match="model must be fitted"):
        save_model(POSCOD(), tmp_path / "m")
    near = fitted(FRAME.to_numpy(), LABELS, TRAFFIC.to_numpy(), classifier=KNeighborsClassifier(algorithm="kd_tree"))
    with pytest.raises(InvalidInputError, match=r"need not trust by name, got .*KDTree"):
        save_model(near, tmp_path / "m")
    assert not (tmp_path / "m").exists()
