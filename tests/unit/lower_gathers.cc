// gather, gather_elements, gather_nd, one_hot, trilu, reverse_sequence, cumsum, cumprod.
#include "lower_testing.h"

namespace tripod::lower {
namespace {

TEST(Gathers, GatherTakesSlices) {
  const Tensor x = made_up({3, 4, 2}), i({2, 2}, {1, -1, 0, -4});
  const Tensor want = fill({3, 2, 2, 2}, [&](const auto& at) {
    int64_t k = static_cast<int64_t>(i[{at[1], at[2]}]);
    return x[{at[0], k < 0 ? k + 4 : k, at[3]}];
  });
  check({"%x: f32[N, K, 2], %i: i64[2, 2]", "%y = gather(%x, %i) {axis: 1}", "%y", {{"N", 3}, {"K", 4}}}, {x, i}, {want});
  check({"%x: f16[3, 4, 2], %i: i32[2, 2]", "%y = gather(%x, %i) {axis: 1}"}, {x, i}, {fill(want.shape, [&](const auto& at) {
          return loop::double_from_bits(DType::f16, loop::bits_from_double(DType::f16, want[at]));
        })});
}

TEST(Gathers, ScalarIndexRemovesTheDim) {
  check({"%x: i64[3, 2], %i: i64[]", "%y = gather(%x, %i) {axis: 0}"}, {Tensor({3, 2}, {1, 2, 3, 4, 5, 6}), Tensor({}, {-2})},
        {Tensor({2}, {3, 4})});
}

TEST(Gathers, OutOfRangeIsReportedAndClamped) {
  const Outcome r = run({"%x: f32[3], %i: i64[4]", "%y = gather(%x, %i) {axis: 0}"},
                        {Tensor({3}, {1, 2, 3}), Tensor({4}, {3, -4, 2, 0})});
  ASSERT_EQ(r.failed_checks.size(), 2u);
  EXPECT_EQ(r.failed_checks[0].got, 3);
  EXPECT_EQ(r.failed_checks[0].limit, 3);
  EXPECT_EQ(r.failed_checks[1].got, -1);
  expect_close(r.results[0], Tensor({4}, {3, 1, 3, 1}), 0);
  ASSERT_EQ(r.sites.texts().size(), 1u);
}

TEST(Gathers, FromNothing) {
  const Outcome r = run({"%x: f32[N], %i: i64[1]", "%y = gather(%x, %i) {axis: 0}", "%y", {{"N", 0}}},
                        {Tensor({0}), Tensor({1}, {0})});
  EXPECT_EQ(r.failed_checks.size(), 1u);
}

TEST(Gathers, GatherElements) {
  const Tensor x = made_up({3, 3}), i({2, 3}, {1, -1, 0, 2, 0, -3});
  const auto wrap = [](double k) { return static_cast<int64_t>(k < 0 ? k + 3 : k); };
  check({"%x: f32[3, 3], %i: i32[2, 3]", "%y = gather_elements(%x, %i) {axis: 0}"}, {x, i},
        {fill({2, 3}, [&](const auto& at) { return x[{wrap(i[at]), at[1]}]; })});
  check({"%x: f32[3, 3], %i: i32[2, 3]", "%y = gather_elements(%x, %i) {axis: 1}"}, {x, i},
        {fill({2, 3}, [&](const auto& at) { return x[{at[0], wrap(i[at])}]; })});
}

TEST(Gathers, GatherNd) {
  const Tensor x = made_up({2, 3, 4});
  check({"%x: f32[2, 3, 4], %i: i64[2, 2]", "%y = gather_nd(%x, %i) {axis: 0}"}, {x, Tensor({2, 2}, {1, -1, 0, 1})},
        {fill({2, 4}, [&](const auto& at) { return at[0] == 0 ? x[{1, 2, at[1]}] : x[{0, 1, at[1]}]; })});
  check({"%x: f32[2, 3, 4], %i: i64[2, 2, 1]", "%y = gather_nd(%x, %i) {axis: 0, value: 1}"},
        {x, Tensor({2, 2, 1}, {2, 0, 1, -3})}, {fill({2, 2, 4}, [&](const auto& at) {
          const int64_t from[2][2] = {{2, 0}, {1, 0}};
          return x[{at[0], from[at[0]][at[1]], at[2]}];
        })});
  const Outcome r = run({"%x: f32[2, 3, 4], %i: i64[1, 3]", "%y = gather_nd(%x, %i) {axis: 0}"},
                        {x, Tensor({1, 3}, {1, 3, 0})});
  EXPECT_EQ(r.failed_checks.size(), 1u);
}

TEST(Gathers, OneHot) {
  const Tensor i({3}, {1, -1, 7}), off({}, {2}), on({}, {5});
  check({"%i: i64[3], %a: f32[], %b: f32[]", "%y = one_hot(%i, %a, %b) {axis: 1} : f32[3, 4]"}, {i, off, on},
        {Tensor({3, 4}, {2, 5, 2, 2, 2, 2, 2, 5, 2, 2, 2, 2})});
  check({"%i: i64[3], %a: i8[], %b: i8[]", "%y = one_hot(%i, %a, %b) {axis: 0} : i8[D, 3]", "%y", {{"D", 2}}}, {i, off, on},
        {Tensor({2, 3}, {2, 2, 2, 5, 5, 2})});
}

TEST(Gathers, Trilu) {
  const Tensor x = made_up({2, 3, 4});
  for (int64_t k : {-1, 0, 2, 100})
    for (bool upper : {false, true}) {
      const Tensor want = fill(x.shape, [&](const auto& at) {
        return (upper ? at[2] >= at[1] + k : at[2] <= at[1] + k) ? x[at] : 0;
      });
      const std::string flag = upper ? "true" : "false";
      check({"%x: f32[2, N, M]", "%y = trilu(%x) {axis: 0, value: " + std::to_string(k) + ", flag_a: " + flag + "}", "%y",
             {{"N", 3}, {"M", 4}}}, {x}, {want});
      check({"%x: f32[2, 3, 4], %k: i64[]", "%y = trilu(%x, %k) {axis: 0, flag_a: " + flag + "}"},
            {x, Tensor({}, {static_cast<double>(k)})}, {want});
    }
}

TEST(Gathers, ReverseSequence) {
  const Tensor x = made_up({4, 3}), lens({3}, {4, 1, 2});
  check({"%x: f32[T, 3], %n: i64[3]", "%y = reverse_sequence(%x, %n) {axis: 0, value: 1}", "%y", {{"T", 4}}}, {x, lens},
        {fill(x.shape, [&](const auto& at) {
          const int64_t n = static_cast<int64_t>(lens[{at[1]}]);
          return x[{at[0] < n ? n - 1 - at[0] : at[0], at[1]}];
        })});
}

TEST(Gathers, CumulativeProductsAndSums) {
  const Tensor x = made_up({2, 5}, 3, 0.5, 1.5);
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true})
      for (bool product : {false, true}) {
        const Tensor want = fill(x.shape, [&](const auto& at) {
          float acc = product ? 1 : 0;
          for (int64_t i = 0; i < 5; ++i) {
            const int64_t k = reverse ? 4 - i : i;
            const bool done = reverse ? k < at[1] : k > at[1];
            if (done || (exclusive && k == at[1])) break;
            acc = product ? acc * static_cast<float>(x[{at[0], k}]) : acc + static_cast<float>(x[{at[0], k}]);
          }
          return acc;
        });
        check({"%x: f32[2, N]", std::string("%y = ") + (product ? "cumprod" : "cumsum") + "(%x) {axis: 1, flag_a: " +
                                    (exclusive ? "true" : "false") + ", flag_b: " + (reverse ? "true" : "false") + "}",
               "%y", {{"N", 5}}}, {x}, {want});
      }
}

}  // namespace
}  // namespace tripod::lower
