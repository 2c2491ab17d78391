// Written by scripts/light_math_coefficients.py, which says how these numbers come about. Do not edit.
#pragma once

namespace tripod::loop::tables {

// clang-format off
// 2^f == p(f), |f| <= 1/2: relative error 2^-18.4
inline constexpr double kExp2Light[] = {0x1.0000000000000p+0, 0x1.62e12c0000000p-1, 0x1.ec03780000000p-3, 0x1.c9fc500000000p-5, 0x1.3a02d20000000p-7};
// 1 / (1 + e) == p(e), 0 <= e <= 1: relative error 2^-16.6
inline constexpr double kOneOverOnePlusLight[] = {0x1.0000000000000p+0, -0x1.ffaf340000000p-1, 0x1.f98c5c0000000p-1, -0x1.d1d3920000000p-1, 0x1.5b9c2a0000000p-1, -0x1.537b6a0000000p-2, 0x1.30c4e60000000p-4};
// The normal distribution's probability of a value under -a, and its imitation by tanh
// p(a)^8, p(7.25) == 0; times a: error 0.24 ulp of an f16
inline constexpr double kGeluLight[] = {0x1.d582ea0000000p-1, -0x1.77dc800000000p-4, -0x1.f89ebc0000000p-6, -0x1.220e300000000p-9, 0x1.4c2dea0000000p-9, -0x1.62baa60000000p-12, 0x1.ca9b2c0000000p-17};
// p(a)^16, p(7.5) == 0; times a: error 0.11 ulp of an f16
inline constexpr double kGeluTanhLight[] = {0x1.ea4b960000000p-1, -0x1.88367e0000000p-5, -0x1.1a5c7e0000000p-6, -0x1.39ba780000000p-9, 0x1.b3b75e0000000p-10, -0x1.eb12e00000000p-12, 0x1.22bc620000000p-14, -0x1.007d6e0000000p-18};
// tanh(x) == x * p(x^2) / q(x^2), |x| <= 4.97: relative error 2^-14.2
inline constexpr double kTanhLightP[] = {0x1.0000000000000p+0, 0x1.a52a6a0000000p-4, 0x1.64e6640000000p-11};
inline constexpr double kTanhLightQ[] = {0x1.0000000000000p+0, 0x1.be67940000000p-2, 0x1.a7bc4c0000000p-7};
// clang-format on

}  // namespace tripod::loop::tables
