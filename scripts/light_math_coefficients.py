#!/usr/bin/env python3
"""Prints src/loop/light_tables.h: the polynomials of the light functions (loop/light_math.h).

usage: scripts/light_math_coefficients.py > src/loop/light_tables.h      (needs numpy)

Minimax fits, by least squares whose weights grow where the error is large (Lawson), rounded to f32 at the end.
"""
from __future__ import annotations

import math
from typing import Callable

import numpy as np

Fn = Callable[[np.ndarray], np.ndarray]
ROUNDS, NODES = 150, 400


def nodes(a: float, b: float) -> np.ndarray:
    return (a + b) / 2 - (b - a) / 2 * np.cos(np.linspace(0, np.pi, NODES))


def lawson(columns: np.ndarray, want: np.ndarray, weight: Fn) -> tuple[float, np.ndarray]:
    """The combination of columns for which the greatest of weight(it) * |error| is least, nearly; and that."""
    share, c = np.full(len(want), 1 / len(want)), np.zeros(columns.shape[1])
    best = (math.inf, c)
    for _ in range(ROUNDS):
        w = weight(c)
        s = np.sqrt(share) * w
        c = np.linalg.lstsq(columns * s[:, None], want * s, rcond=None)[0]
        errors = np.abs(columns @ c - want) * weight(c)
        best = min(best, (errors.max(), c), key=lambda e: e[0])
        share *= errors / errors.max() + 1e-9
        share /= share.sum()
    return best


def minimax(g: Fn, weight: Fn, a: float, b: float, degree: int, constant: float | None = None) -> tuple[float, list[float]]:
    """Perhaps with a given constant term."""
    x, first = nodes(a, b), 0 if constant is None else 1
    columns = np.stack([x**k for k in range(first, degree + 1)], 1)
    error, c = lawson(columns, g(x) - (constant or 0), lambda _: weight(x))
    return error, ([] if constant is None else [constant]) + list(c)


def line(name: str, cs: list[float], what: str = "") -> None:
    print((f"// {what}\n" if what else "") + f"inline constexpr double {name}[] = {{{', '.join(float(np.float32(c)).hex() for c in cs)}}};")


def bits(error: float) -> str:
    return f"relative error 2^{math.log2(error):.1f}"


def gate(name: str, power: int, degree: int, root: float, top: float, h: Fn) -> None:
    """h(a) == p(a)^power for 0 <= a <= root, p(root) == 0. The error of a * h(a) counts, in ulp of an f16, up to `top`."""
    def weight(a: np.ndarray) -> np.ndarray:
        x = np.maximum(a, 1e-3)
        ulp = 2.0 ** (np.maximum(np.floor(np.log2(x * h(x))), -14) - 10)
        return (root - a) * x * power * h(a) ** (1 - 1 / power) / ulp

    error, s = minimax(lambda a: h(a) ** (1 / power) / (root - a), weight, 0, top, degree - 1)
    cs = np.append(root * np.array(s), 0)
    cs[1:] -= s
    line(name, list(cs), f"p(a)^{power}, p({root}) == 0; times a: error {error:.2f} ulp of an f16")


def tanh() -> None:
    """p and q together: tanh(x)/x * q - p is linear in their coefficients, and weighted by the last q."""
    z = nodes(1e-9, 4.97**2)
    r = np.tanh(np.sqrt(z)) / np.sqrt(z)
    columns = np.stack([z, z * z, -r * z, -r * z * z], 1)
    error, c = lawson(columns, r - 1, lambda c: 1 / (r * (1 + c[2] * z + c[3] * z * z)))
    line("kTanhLightP", [1, c[0], c[1]], f"tanh(x) == x * p(x^2) / q(x^2), |x| <= 4.97: {bits(error)}")
    line("kTanhLightQ", [1, c[2], c[3]])


def main() -> None:
    print("// Written by scripts/light_math_coefficients.py, which says how these numbers come about. Do not edit.")
    print("#pragma once\n\nnamespace tripod::loop::tables {\n\n// clang-format off")
    error, cs = minimax(lambda f: 2.0**f, lambda f: 2.0**-f, -0.5, 0.5, 4, 1)
    line("kExp2Light", cs, f"2^f == p(f), |f| <= 1/2: {bits(error)}")
    error, cs = minimax(lambda e: 1 / (1 + e), lambda e: 1 + e, 0, 1, 6, 1)
    line("kOneOverOnePlusLight", cs, f"1 / (1 + e) == p(e), 0 <= e <= 1: {bits(error)}")
    print("// The normal distribution's probability of a value under -a, and its imitation by tanh")
    gate("kGeluLight", 8, 6, 7.25, 5.75, np.vectorize(lambda a: math.erfc(a / math.sqrt(2)) / 2))
    gate("kGeluTanhLight", 16, 7, 7.5, 5.25, lambda a: 1 / (1 + np.exp(2 * math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))))
    tanh()
    print("// clang-format on\n\n}  // namespace tripod::loop::tables")


if __name__ == "__main__":
    main()
