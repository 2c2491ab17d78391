#include "base/float_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/sha256.h"

namespace tripod {
namespace {

constexpr DType kSmall[] = {DType::f16,        DType::bf16,     DType::f8e4m3fn,
                            DType::f8e4m3fnuz, DType::f8e5m2,   DType::f8e5m2fnuz};
constexpr double kInf = std::numeric_limits<double>::infinity();

// Every pattern reads and writes back, and between two neighbours everything rounds to nearest, ties to even.
TEST(FloatBits, RoundsToNearestEven) {
  for (DType t : kSmall) {
    const uint64_t top = uint64_t{1} << info(t).bits;
    for (uint64_t bits = 0; bits < top; ++bits) {
      const double v = decode_float(t, bits);
      if (std::isnan(v)) continue;
      ASSERT_EQ(encode_float(t, v, false), bits) << name(t) << " " << bits;
    }
    for (uint64_t bits = 0; bits + 1 < top / 2; ++bits) {
      const double a = decode_float(t, bits), b = decode_float(t, bits + 1);
      if (std::isnan(b) || std::isinf(b)) break;
      const double middle = (a + b) / 2;
      ASSERT_EQ(encode_float(t, middle), bits + bits % 2) << name(t) << " " << bits;
      ASSERT_EQ(encode_float(t, std::nextafter(middle, 0.0)), bits) << name(t) << " " << bits;
      ASSERT_EQ(encode_float(t, std::nextafter(middle, kInf)), bits + 1) << name(t) << " " << bits;
      ASSERT_EQ(decode_float(t, encode_float(t, -middle)), -decode_float(t, bits + bits % 2));
    }
  }
}

TEST(FloatBits, KnownValues) {
  EXPECT_EQ(f16_bits(1), 0x3c00);
  EXPECT_EQ(f16_bits(65504), 0x7bff);
  EXPECT_EQ(f16_bits(65519.99), 0x7bff);
  EXPECT_EQ(f16_bits(65520), 0x7c00);
  EXPECT_EQ(f16_bits(std::ldexp(1, -25)), 0);  // half of the least subnormal, tie to even
  EXPECT_EQ(f16_bits(std::ldexp(1.0001, -25)), 1);
  EXPECT_EQ(bf16_bits(1), 0x3f80);
  EXPECT_EQ(bf16_bits(3.4e38), 0x7f80);
  EXPECT_EQ(f16_value(0x3555), 0.333251953125f);
  // Once from f64, not through f32: 1 + 2^-11 + 2^-40 lies above the tie.
  EXPECT_EQ(f16_bits(1 + std::ldexp(1, -11) + std::ldexp(1, -40)), 0x3c01);
  EXPECT_EQ(decode_float(DType::f8e4m3fn, 0x7e), 448);
  EXPECT_EQ(decode_float(DType::f8e4m3fnuz, 0x7f), 240);
  EXPECT_EQ(decode_float(DType::f8e5m2, 0x7b), 57344);
  EXPECT_EQ(decode_float(DType::f8e5m2fnuz, 0x7f), 57344);
}

// The table in ONNX's Cast.
TEST(FloatBits, Saturation) {
  struct Row {
    DType t;
    double largest;
    uint64_t inf_unsaturated;
  };
  const Row rows[] = {{DType::f8e4m3fn, 448, 0x7f},
                      {DType::f8e4m3fnuz, 240, 0x80},
                      {DType::f8e5m2, 57344, 0x7c},
                      {DType::f8e5m2fnuz, 57344, 0x80}};
  for (const Row& r : rows) {
    for (double v : {kInf, r.largest * 2}) {
      EXPECT_EQ(decode_float(r.t, encode_float(r.t, v)), r.largest) << name(r.t);
      EXPECT_EQ(decode_float(r.t, encode_float(r.t, -v)), -r.largest) << name(r.t);
      EXPECT_EQ(encode_float(r.t, v, false), r.inf_unsaturated) << name(r.t);
    }
    EXPECT_TRUE(std::isnan(decode_float(r.t, encode_float(r.t, std::nan("")))));
  }
  EXPECT_EQ(encode_float(DType::f8e4m3fnuz, -0.0), 0u);
  EXPECT_EQ(encode_float(DType::f8e4m3fn, -0.0), 0x80u);
}

TEST(FloatBits, Elements) {
  std::byte data[16] = {};
  for (int i = 0; i < 4; ++i) store_int(DType::i4, data, i, i - 2);
  EXPECT_EQ(static_cast<int>(data[0]), 0xfe);
  EXPECT_EQ(static_cast<int>(data[1]), 0x10);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_int(DType::i4, data, i), i - 2);
  store_double(DType::u8, data, 3, 300);
  EXPECT_EQ(load_int(DType::u8, data, 3), 255);
  store_double(DType::i64, data, 1, 1e30);
  EXPECT_EQ(load_int(DType::i64, data, 1), std::numeric_limits<int64_t>::max());
  store_bits(DType::u64, data, 0, ~uint64_t{0});
  EXPECT_EQ(load_int(DType::u64, data, 0), std::nullopt);
  EXPECT_EQ(load_double(DType::u64, data, 0), 18446744073709551616.0);
  EXPECT_EQ(int_min(DType::i4), -8);
  EXPECT_EQ(int_max(DType::u4), 15);
  EXPECT_EQ(int_min(DType::i64), std::numeric_limits<int64_t>::min());
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 s;
  for (int i = 0; i < 1000000; ++i) s.update("a");
  EXPECT_EQ(s.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace tripod
