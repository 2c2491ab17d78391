#!/usr/bin/env python3
"""Prints src/loop/math_tables.h: the polynomials of loop/expand_math.cc.

usage: scripts/math_coefficients.py > src/loop/math_tables.h      (needs mpmath)

Every polynomial is the least-squares fit of its function at Chebyshev nodes (in 50 digits), which is within a small
factor of the minimax polynomial; the degrees leave room for that. The coefficients are rounded to their type from the constant term
on, and the higher ones are fitted anew each time, so that they take up the rounding errors of the lower ones.
The maximal error of each, relative to the function that it serves, is printed in its comment.
"""
from __future__ import annotations

import struct
from typing import Callable

from mpmath import asin, atan, cos, erf, erfc, exp, log, lu_solve, matrix, mp, mpf, pi, sin, sinh, sqrt, tanh

mp.dps = 50
Fn = Callable[[mpf], mpf]


def rounded(x: mpf, kind: str) -> mpf:
    """x as a float or a double."""
    return mpf(struct.unpack(kind, struct.pack(kind, float(x)))[0])


def nodes(a: mpf, b: mpf, n: int) -> list[mpf]:
    return [(a + b) / 2 + (b - a) / 2 * cos(pi * (2 * i + 1) / (2 * n)) for i in range(n)]


def fit(g: Fn, a: mpf, b: mpf, degree: int, kind: str) -> list[mpf]:
    """Coefficients of degree 0.. of a polynomial close to g on [a, b]."""
    done: list[mpf] = []
    while len(done) <= degree:
        n = degree + 1 - len(done)
        xs = nodes(a, b, 3 * degree + 3)
        left = matrix(len(xs), n)
        right = matrix(len(xs), 1)
        for i, x in enumerate(xs):
            rest = g(x) - sum(c * x**k for k, c in enumerate(done))
            for k in range(n):
                left[i, k] = x ** (k + len(done))
            right[i] = rest
        done.append(rounded(lu_solve(left, right)[0], kind))
    return done


def table(name: str, what: str, g: Fn, a: mpf, b: mpf, degree: int, kind: str,
          whole: Fn, rebuilt: Callable[[mpf, mpf], mpf], x_of: Fn) -> str:
    """whole: the function served, of x; rebuilt(x, p): the same from the polynomial's value; x_of: the polynomial's
    argument back to x."""
    cs = fit(g, a, b, degree, kind)
    worst = mpf(0)
    for i in range(400):
        z = a + (b - a) * (i + mpf("0.37")) / 400
        x = x_of(z)
        p = sum(c * z**k for k, c in enumerate(cs))
        worst = max(worst, abs(rebuilt(x, p) / whole(x) - 1))
    bits = float(log(worst) / log(2)) if worst else -999.0
    values = ", ".join(float(c).hex() for c in cs)
    return f"// {what}: relative error 2^{bits:.1f}\ninline constexpr double {name}[] = {{{values}}};\n"


def series(g: Fn, at_zero: mpf) -> Fn:
    """g with its limit where the formula is 0/0 or has lost its digits."""
    return lambda z: at_zero if abs(z) < mpf("1e-18") else g(z)


def tables(suffix: str, kind: str, d: dict[str, int], asin_max: mpf, atan_max: mpf, erf_split: mpf, erf_max: mpf) -> str:
    out = []
    h = log(2) / 2 * mpf("1.0001")
    out.append(table("kExp" + suffix, "exp(r) == 1 + r + r^2 * p(r), |r| <= ln(2)/2",
                     series(lambda r: (exp(r) - 1 - r) / r**2, mpf(1) / 2), -h, h, d["exp"], kind,
                     exp, lambda r, p: 1 + r + r * r * p, lambda r: r))
    lo, hi = sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1
    if suffix == "F32":
        out.append(table("kLogF32", "log(1 + f) == f - f^2/2 + f^3 * p(f), sqrt(1/2) <= 1 + f <= sqrt(2)",
                         series(lambda f: (log(1 + f) - f + f * f / 2) / f**3, mpf(1) / 3), lo, hi, d["log"], kind,
                         lambda f: log(1 + f), lambda f, p: f - f * f / 2 + f**3 * p, lambda f: f))
    else:
        s2 = (hi / (2 + hi)) ** 2 * mpf("1.001")
        out.append(table("kLogF64", "log((1 + s) / (1 - s)) == 2s + s^3 * p(s^2), |s| <= 0.1716",
                         series(lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z)) / sqrt(z) ** 3, mpf(2) / 3),
                         mpf(0), s2, d["log"], kind, lambda s: log((1 + s) / (1 - s)), lambda s, p: 2 * s + s**3 * p, sqrt))
        out.append(table("kLogTailF64", "log((1 + s) / (1 - s)) == 2s + 2/3 s^3 + s^5 * p(s^2), |s| <= 0.1716",
                         series(lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z) - sqrt(z) ** 3 * 2 / 3)
                                / sqrt(z) ** 5, mpf(2) / 5),
                         mpf(0), s2, 7, kind, lambda s: log((1 + s) / (1 - s)),
                         lambda s, p: 2 * s + s**3 * 2 / 3 + s**5 * p, sqrt))
    q = (pi / 4) ** 2 * mpf("1.0001")
    out.append(table("kSin" + suffix, "sin(r) == r + r^3 * p(r^2), |r| <= pi/4",
                     series(lambda z: (sin(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, -mpf(1) / 6), mpf(0), q, d["sin"], kind,
                     sin, lambda r, p: r + r**3 * p, sqrt))
    out.append(table("kCos" + suffix, "cos(r) == 1 - r^2/2 + r^4 * p(r^2), |r| <= pi/4",
                     series(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24), mpf(0), q, d["cos"], kind,
                     cos, lambda r, p: 1 - r * r / 2 + r**4 * p, sqrt))
    for name, f, c, top in (("Asin", asin, mpf(1) / 6, asin_max), ("Atan", atan, -mpf(1) / 3, atan_max),
                            ("Sinh", sinh, mpf(1) / 6, mpf(1)), ("Tanh", tanh, -mpf(1) / 3, mpf("0.55"))):
        out.append(table(f"k{name}{suffix}", f"{name.lower()}(x) == x + x^3 * p(x^2), |x| <= {float(top):.4f}",
                         series(lambda z, f=f: (f(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, c), mpf(0), top**2,
                         d[name.lower()], kind, f, lambda x, p: x + x**3 * p, sqrt))
    out.append(table("kErf" + suffix, f"erf(x) == x + x * p(x^2), |x| <= {float(erf_split)}",
                     series(lambda z: erf(sqrt(z)) / sqrt(z) - 1, 2 / sqrt(pi) - 1), mpf(0), erf_split**2, d["erf"], kind,
                     erf, lambda x, p: x + x * p, sqrt))
    out.append(table("kErfc" + suffix, f"erf(x) == 1 - exp(p(x)), {float(erf_split)} <= x <= {float(erf_max)}",
                     lambda x: log(erfc(x)), erf_split, erf_max, d["erfc"], kind,
                     erf, lambda x, p: 1 - exp(p), lambda x: x))
    return "\n".join(out)


def parts(x: mpf, kind: str, bits: list[int]) -> str:
    """x as a sum of numbers, each with so many bits (0: all that its type has)."""
    out = []
    for b in bits:
        if b:
            e = int(mp.floor(log(abs(x)) / log(2))) + 1 - b
            p = mp.floor(x / mpf(2) ** e) * mpf(2) ** e
        else:
            p = rounded(x, kind)
        out.append(float(p).hex())
        x -= p
    return ", ".join(out)


def main() -> None:
    mp.dps = 50
    print("// Written by scripts/math_coefficients.py, which says how these numbers come about. Do not edit.")
    print("#pragma once\n\nnamespace tripod::loop::tables {\n\n// clang-format off")
    print(tables("F32", "f", dict(exp=5, log=8, sin=3, cos=2, asin=5, atan=4, sinh=3, tanh=4, erf=6, erfc=8),
                 mpf(1) / 2, mpf("0.41422"), mpf("0.921875"), mpf(4)))
    print(tables("F64", "d", dict(exp=10, log=7, sin=6, cos=6, asin=12, atan=11, sinh=7, tanh=10, erf=14,
                             erfc=23),
                 mpf(1) / 2, mpf("0.41422"), mpf(1), mpf(6)))
    print("// ln(2): the first part times any exponent is exact")
    print(f"inline constexpr double kLn2F32[] = {{{parts(log(mpf(2)), 'f', [14, 0])}}};")
    print(f"inline constexpr double kLn2F64[] = {{{parts(log(mpf(2)), 'd', [40, 0])}}};")
    print("// pi/2 as a sum of doubles")
    print(f"inline constexpr double kHalfPi[] = {{{parts(pi / 2, 'd', [0, 0, 0])}}};")
    mp.dps = 90
    print("// 2/pi in pieces of 29 bits: times an f32 each is exact in f64")
    print(f"inline constexpr double kTwoOverPi[] = {{{parts(2 / pi, 'd', [29] * 7)}}};")
    print("// clang-format on\n\n}  // namespace tripod::loop::tables")


if __name__ == "__main__":
    main()
