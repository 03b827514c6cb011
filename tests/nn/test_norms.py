"""Norms against their formulas in NumPy."""

import numpy as np
import torch

from manyheads.nn.encoder import make_norm


def test_layer_norm_is_its_formula():
    norm, x = make_norm("layer", 7).double(), 3 + 5 * torch.randn(4, 7, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    centred = x.numpy() - x.numpy().mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    expected = normal * norm.weight.detach().numpy() + norm.bias.detach().numpy()
    np.testing.assert_allclose(norm(x).detach().numpy(), expected, atol=1e-12)


def test_rms_norm_is_its_formula():
    norm, x = make_norm("rms", 7).double(), 3 + 5 * torch.randn(4, 7, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    size = np.sqrt((x.numpy() ** 2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(norm(x).detach().numpy(), x.numpy() / size * norm.weight.detach().numpy(), atol=1e-12)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_a_fresh_norm_gives_tokens_of_unit_size():
    for kind in ("layer", "rms"):
        sizes = make_norm(kind, 64)(9 * torch.randn(5, 64)).square().mean(-1)
        torch.testing.assert_close(sizes, torch.ones(5), rtol=1e-3, atol=0)


def test_a_vector_of_zeros_stays_finite():
    for kind in ("layer", "rms"):
        x = torch.zeros(2, 6, requires_grad=True)
        make_norm(kind, 6)(x).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()
