"""The loss is the core's likelihood, differentiable and stable."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit

from poscod.backends.torch import CorrectedSigmoidLoss
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid
from poscod.ratio._likelihood import log_a, row_losses

numbers = st.floats(-800.0, 800.0)


@given(
    u=st.lists(numbers, min_size=1, max_size=8),
    pi_u=st.floats(0.001, 0.999),
    pi=st.one_of(st.floats(1e-6, 1.0, exclude_max=True), st.just(1.0)),
    data=st.data(),
)
def test_value_is_the_core_likelihood(u, pi_u, pi, data):
    marks = np.array(data.draw(st.lists(st.booleans(), min_size=len(u), max_size=len(u))))
    u = np.array(u)
    expected, slope = row_losses(u.copy(), marks, log_a(pi, float(logit(pi_u))))
    loss = CorrectedSigmoidLoss(pi_u, pi, reduction="none")
    x = torch.tensor(u, dtype=torch.float64, requires_grad=True)
    rows = loss(x, torch.tensor(marks))
    np.testing.assert_allclose(rows.detach().numpy(), expected, rtol=1e-12, atol=1e-12 * np.abs(u).max() + 1e-15)
    rows.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "stratified"])
@pytest.mark.parametrize(("pi_u", "start"), [(0.3, 0.1), (0.8, 0.7)])
def test_gradients_of_output_and_prior(pi_u, start, reduction):
    loss = CorrectedSigmoidLoss(pi_u, start=start, reduction=reduction)
    marks = torch.tensor([True, False, False, True, True])
    u = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3

    def value(u, q):
        return torch.func.functional_call(loss, {"prior_logit": q}, (u, marks))

    q = loss.prior_logit.detach().clone().requires_grad_(True)
    assert torch.autograd.gradcheck(value, (u.requires_grad_(True), q))


@pytest.mark.parametrize("prior", [None, 0.2, 1.0])
def test_finite_far_out(prior):
    loss = CorrectedSigmoidLoss(0.4, prior)
    u = torch.tensor([-1e4, 1e4, -1e4, 1e4], requires_grad=True)
    value = loss(u, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(u.grad).all()


def test_prior_stays_inside_and_never_rounds_its_complement_away():
    loss = CorrectedSigmoidLoss(0.5)
    with torch.no_grad():
        loss.prior_logit.fill_(60.0)  # sigmoid(60) is 1.0 in double precision
    value = loss(torch.tensor([-200.0], dtype=torch.float64), torch.tensor([True]))
    value.backward()
    # a = 1 - pi = exp(-60), so the loss is log(1 + a) - log(a) = 60 and its slope in the logit one.
    assert value.item() == pytest.approx(60.0, abs=1e-9)
    assert loss.prior_logit.grad.item() == pytest.approx(1.0, abs=1e-9)


def test_stratified_weighs_sides_by_the_data_not_by_the_batch():
    rows = CorrectedSigmoidLoss(0.2, 0.3, reduction="none")
    both = CorrectedSigmoidLoss(0.2, 0.3, reduction="stratified")
    u, marks = torch.tensor([0.5, -1.0, 2.0, 0.1]), torch.tensor([True, True, True, False])
    parts = rows(u, marks)
    assert both(u, marks).item() == pytest.approx((0.8 * parts[3] + 0.2 * parts[:3].mean()).item())
    with pytest.raises(InvalidInputError, match="one kind only"):
        both(u, torch.ones(4))


def test_two_changed_lines_find_the_closed_form_optimum(rng):
    """A linear layer trained with the loss ends where the core's L-BFGS ends."""
    known = rng.normal(0.0, 1.0, (3000, 2))
    mixture = np.vstack([rng.normal(0.0, 1.0, (1400, 2)), rng.normal(2.5, 1.0, (600, 2))])
    core = CorrectedSigmoid(recipe="paper").fit(known, mixture)
    x = torch.tensor(np.vstack([known, mixture]))
    marks = torch.arange(5000) >= 3000
    torch.manual_seed(0)
    network, loss = torch.nn.Linear(2, 1, dtype=torch.float64), CorrectedSigmoidLoss(2000 / 5000)
    optimiser = torch.optim.LBFGS(
        [*network.parameters(), *loss.parameters()], max_iter=200, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        value = loss(network(x), marks)
        value.backward()
        return value

    optimiser.step(closure)
    assert loss.ood_prior == pytest.approx(core.ood_prior_, abs=0.005)
    log_ratio = loss.log_ratio(network(x)).detach().numpy()
    assert np.abs(log_ratio - core.log_ratio(x.numpy())).max() < 0.1


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_lifted(half):
    loss = CorrectedSigmoidLoss(0.5, 0.3)
    u = torch.tensor([300.0, -300.0])
    assert loss(u.to(half), torch.tensor([1, 0])).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"pi_u": 1.0}, "pi_u"),
        ({"pi_u": 0.5, "ood_prior": 0.0}, "ood_prior"),
        ({"pi_u": 0.5, "start": 1.0}, "start"),
        ({"pi_u": 0.5, "reduction": "sum"}, "reduction must be one of"),
    ],
)
def test_bad_arguments(arguments, match):
    with pytest.raises(InvalidInputError, match=match):
        CorrectedSigmoidLoss(**arguments)


def test_bad_batches():
    loss = CorrectedSigmoidLoss(0.5)
    with pytest.raises(InvalidInputError, match=r"shape \(n,\) or \(n, 1\).*got \(3, 2\)"):
        loss(torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(InvalidInputError, match=r"one mark per row of u \(3\), got 2"):
        loss(torch.zeros(3), torch.zeros(2))
    assert "learned" in repr(loss)
