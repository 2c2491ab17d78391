// Written by scripts/math_coefficients.py, which says how these numbers come about. Do not edit.
#pragma once

namespace tripod::loop::tables {

// clang-format off
// exp(r) == 1 + r + r^2 * p(r), |r| <= ln(2)/2: relative error 2^-31.7
inline constexpr double kExpF32[] = {0x1.0000000000000p-1, 0x1.5555560000000p-3, 0x1.5555020000000p-5, 0x1.110fc80000000p-7, 0x1.6d2e080000000p-10, 0x1.a2cb560000000p-13};

// log(1 + f) == f - f^2/2 + f^3 * p(f), sqrt(1/2) <= 1 + f <= sqrt(2): relative error 2^-28.1
inline constexpr double kLogF32[] = {0x1.5555540000000p-2, -0x1.fffff20000000p-3, 0x1.999d3e0000000p-3, -0x1.555ea60000000p-3, 0x1.23d80e0000000p-3, -0x1.fc63820000000p-4, 0x1.dd9aae0000000p-4, -0x1.d9bfcc0000000p-4, 0x1.24bac20000000p-4};

// sin(r) == r + r^3 * p(r^2), |r| <= pi/4: relative error 2^-30.9
inline constexpr double kSinF32[] = {-0x1.5555560000000p-3, 0x1.11119a0000000p-7, -0x1.a085820000000p-13, 0x1.88264a0000000p-19};

// cos(r) == 1 - r^2/2 + r^4 * p(r^2), |r| <= pi/4: relative error 2^-29.9
inline constexpr double kCosF32[] = {0x1.5555540000000p-5, -0x1.6c129e0000000p-10, 0x1.9bc7720000000p-16};

// asin(x) == x + x^3 * p(x^2), |x| <= 0.5000: relative error 2^-30.3
inline constexpr double kAsinF32[] = {0x1.5555540000000p-3, 0x1.3334c60000000p-4, 0x1.6d40cc0000000p-5, 0x1.ff86160000000p-6, 0x1.10f0ea0000000p-6, 0x1.19ecf40000000p-5};

// atan(x) == x + x^3 * p(x^2), |x| <= 0.4142: relative error 2^-28.7
inline constexpr double kAtanF32[] = {-0x1.5555540000000p-2, 0x1.99970c0000000p-3, -0x1.241d8c0000000p-3, 0x1.b7ead80000000p-4, -0x1.07ec660000000p-4};

// sinh(x) == x + x^3 * p(x^2), |x| <= 1.0000: relative error 2^-30.3
inline constexpr double kSinhF32[] = {0x1.5555560000000p-3, 0x1.1110c60000000p-7, 0x1.a035540000000p-13, 0x1.7252360000000p-19};

// tanh(x) == x + x^3 * p(x^2), |x| <= 0.5500: relative error 2^-28.1
inline constexpr double kTanhF32[] = {-0x1.5555540000000p-2, 0x1.110fc60000000p-3, -0x1.b999de0000000p-5, 0x1.5cebe00000000p-6, -0x1.b000a60000000p-8};

// erf(x) == x + x * p(x^2), |x| <= 0.921875: relative error 2^-30.2
inline constexpr double kErfF32[] = {0x1.06eba80000000p-3, -0x1.8127420000000p-2, 0x1.ce2df20000000p-4, -0x1.b80db00000000p-6, 0x1.54c5800000000p-8, -0x1.aa4cc60000000p-11, 0x1.5d556c0000000p-14};

// erf(x) == 1 - exp(p(x)), 0.921875 <= x <= 4.0: relative error 2^-30.2
inline constexpr double kErfcF32[] = {0x1.3d3cf40000000p-12, -0x1.21526e0000000p+0, -0x1.438dd60000000p-1, -0x1.c2744e0000000p-4, 0x1.afec2e0000000p-6, -0x1.369a9c0000000p-8, 0x1.36b2000000000p-11, -0x1.7e474a0000000p-15, 0x1.b101f40000000p-20};

// exp(r) == 1 + r + r^2 * p(r), |r| <= ln(2)/2: relative error 2^-62.1
inline constexpr double kExpF64[] = {0x1.0000000000000p-1, 0x1.5555555555557p-3, 0x1.5555555555556p-5, 0x1.1111111110050p-7, 0x1.6c16c16c15ff9p-10, 0x1.a01a01ac1e915p-13, 0x1.a01a01a81968ep-16, 0x1.71de01aacd321p-19, 0x1.27e4d81523f67p-22, 0x1.af4ecf3207b21p-26, 0x1.1f78e7c32e010p-29};

// log((1 + s) / (1 - s)) == 2s + s^3 * p(s^2), |s| <= 0.1716: relative error 2^-65.7
inline constexpr double kLogF64[] = {0x1.5555555555555p-1, 0x1.9999999999d57p-2, 0x1.249249242f2e4p-2, 0x1.c71c725be0e25p-3, 0x1.745cdba58d46dp-3, 0x1.3b214fb71dba4p-3, 0x1.0f4b009307f1ep-3, 0x1.101ac692154c4p-3};

// log((1 + s) / (1 - s)) == 2s + 2/3 s^3 + s^5 * p(s^2), |s| <= 0.1716: relative error 2^-69.3
inline constexpr double kLogTailF64[] = {0x1.999999999999ap-2, 0x1.24924924922fep-2, 0x1.c71c71c74c6e7p-3, 0x1.745d173cf2fd2p-3, 0x1.3b13a9c33f62cp-3, 0x1.11155346e46cap-3, 0x1.e018eabf1d00fp-4, 0x1.daab780b76966p-4};

// sin(r) == r + r^3 * p(r^2), |r| <= pi/4: relative error 2^-60.9
inline constexpr double kSinF64[] = {-0x1.5555555555555p-3, 0x1.111111111101ep-7, -0x1.a01a019fe8850p-13, 0x1.71de3a1033904p-19, -0x1.ae63f7f76afddp-26, 0x1.60e5c4ce133cdp-33, -0x1.8d4d0bcbd514bp-41};

// cos(r) == 1 - r^2/2 + r^4 * p(r^2), |r| <= pi/4: relative error 2^-63.3
inline constexpr double kCosF64[] = {0x1.5555555555555p-5, -0x1.6c16c16c16a32p-10, 0x1.a01a019fb7a9ep-16, -0x1.27e4faeeae8e5p-22, 0x1.1eecd5a9f30c4p-29, -0x1.92a5c5847b6cfp-37, 0x1.34486aa2e54d7p-45};

// asin(x) == x + x^3 * p(x^2), |x| <= 0.5000: relative error 2^-58.1
inline constexpr double kAsinF64[] = {0x1.5555555555556p-3, 0x1.3333333332dd0p-4, 0x1.6db6db6e433f6p-5, 0x1.f1c71c1512780p-6, 0x1.6e8bb2f52b686p-6, 0x1.1c4d1ccd774f9p-6, 0x1.c9d1b64da4165p-7, 0x1.780dc5a9d01a6p-7, 0x1.52d9116d7b69bp-7, 0x1.60d7477c0be60p-8, 0x1.203bdbeaff9a8p-6, -0x1.f01477e18c949p-7, 0x1.da43d6d1db199p-6};

// atan(x) == x + x^3 * p(x^2), |x| <= 0.4142: relative error 2^-63.6
inline constexpr double kAtanF64[] = {-0x1.5555555555555p-2, 0x1.9999999999814p-3, -0x1.2492492481ba1p-3, 0x1.c71c71bc9b3a1p-4, -0x1.745d15656d4b9p-4, 0x1.3b137bdb57837p-4, -0x1.110d2a321c65fp-4, 0x1.e17ed09360239p-5, -0x1.abc94153e2159p-5, 0x1.72098c4d89160p-5, -0x1.149d3a1ef3797p-5, 0x1.faf86e5573359p-7};

// sinh(x) == x + x^3 * p(x^2), |x| <= 1.0000: relative error 2^-60.8
inline constexpr double kSinhF64[] = {0x1.5555555555555p-3, 0x1.11111111111d8p-7, 0x1.a01a019ff8728p-13, 0x1.71de3a7d5ee3bp-19, 0x1.ae6425abdc933p-26, 0x1.614458663f07bp-33, 0x1.992cd3eb98b8ep-41, 0x1.d1d7553c5b857p-47};

// tanh(x) == x + x^3 * p(x^2), |x| <= 0.5500: relative error 2^-58.7
inline constexpr double kTanhF64[] = {-0x1.5555555555555p-2, 0x1.1111111110fd7p-3, -0x1.ba1ba1b9f898ep-5, 0x1.664f48758810bp-6, -0x1.226e32b9aec18p-7, 0x1.d6d3302f3a0e0p-9, -0x1.7d97579e3c26fp-10, 0x1.34c1b2f86e729p-11, -0x1.ebe78e781ffd0p-13, 0x1.648684d5cc58fp-14, -0x1.587fd18b2ed84p-16};

// erf(x) == x + x * p(x^2), |x| <= 1.0: relative error 2^-56.5
inline constexpr double kErfF64[] = {0x1.06eba8214db69p-3, -0x1.812746b037a06p-2, 0x1.ce2f21a04402ap-4, -0x1.b82ce312eb273p-6, 0x1.565bcd1f53f66p-8, -0x1.c02db7a6c13c3p-11, 0x1.f9a3adb9d9255p-14, -0x1.f4dfd52b97d29p-17, 0x1.badad5e2afd0cp-20, -0x1.6bc2ead8c63acp-23, 0x1.6ee557333a484p-26, -0x1.b82b72cf8479bp-28, 0x1.7ed177845bfe3p-29, -0x1.cac4b8d879f5cp-31, 0x1.f7ad0efe4f5c1p-34};

// erf(x) == 1 - exp(p(x)), 1.0 <= x <= 6.0: relative error 2^-54.4
inline constexpr double kErfcF64[] = {-0x1.beba8d04b4e06p-25, -0x1.20dd6ef3f637fp+0, -0x1.45f3225fbfa30p-1, -0x1.a4f59865ad39ap-4, 0x1.398cc6fc983b4p-6, 0x1.7a8bef7a05644p-13, -0x1.adf293c44663ap-10, 0x1.0bc362ebaab51p-11, 0x1.fc707fa1c7167p-15, -0x1.23d6cf59b47ddp-13, 0x1.55f3f4bdaf589p-14, -0x1.0f04395d6ec13p-15, 0x1.4c85ba901339ep-17, -0x1.4a27a2c45f670p-19, 0x1.0dc7d9637dd96p-21, -0x1.6c742f103d48ap-24, 0x1.95b342aa80567p-27, -0x1.70aebeb31dac5p-30, 0x1.0d382e1689459p-33, -0x1.34507ec80a9eap-37, 0x1.0a9f6ab8fbeadp-41, -0x1.474f7b0980136p-46, 0x1.fc31ca326bdc7p-52, -0x1.770079912d12ep-58};

// ln(2): the first part times any exponent is exact
inline constexpr double kLn2F32[] = {0x1.62e0000000000p-1, 0x1.0bfbe80000000p-15};
inline constexpr double kLn2F64[] = {0x1.62e42fefa2000p-1, 0x1.9ef35793c7673p-41};
// pi/2 as a sum of doubles
inline constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
// 2/pi in pieces of 29 bits: times an f32 each is exact in f64
inline constexpr double kTwoOverPi[] = {0x1.45f306d000000p-1, 0x1.9391054000000p-30, 0x1.4fe13ab000000p-59, 0x1.d1f534d000000p-88, 0x1.b81b6c5000000p-117, 0x1.5993c43000000p-148, 0x1.2083fca000000p-177};
// clang-format on

}  // namespace tripod::loop::tables
