// Runtime operators against obvious implementations on random data, and the corners of their meaning by hand.
#include "runtime/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "runtime/internal.h"
#include "runtime_fake_model.h"

namespace {

using namespace tripod::rt;
using Ints = std::vector<int64_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
tp_view view(std::vector<T>& data, int32_t dtype, const Ints& shape) {
  tp_view v = {data.data(), dtype, static_cast<int32_t>(shape.size()), {}};
  std::copy(shape.begin(), shape.end(), v.shape);
  return v;
}
constexpr tp_view kAbsent = {};

struct Ops : testing::Test {
  tripod_context* context = new_context();
  tp_run* run = &context->run;
  std::mt19937 random{7};
  int64_t found() const { return run->dims[fake::kK]; }
  std::string message() const { return run->message; }
  ~Ops() override { delete_context(context); }

  template <typename T>
  std::vector<T> values(int64_t n, int range) {
    std::vector<T> v;
    for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<T>(static_cast<int>(random() % static_cast<unsigned>(range)) - range / 2));
    return v;
  }
  template <typename T>
  void check_topk(int32_t dtype, const Ints& shape, int64_t axis, int64_t k, bool largest);
};

// The plain meaning of TopK: a stable sort of every row.
template <typename T>
void Ops::check_topk(int32_t dtype, const Ints& shape, int64_t axis, int64_t k, bool largest) {
  int64_t outer = 1, inner = 1, n = shape[static_cast<size_t>(axis)];
  for (size_t d = 0; d < shape.size(); ++d)
    (static_cast<int64_t>(d) < axis ? outer : inner) *= static_cast<int64_t>(d) == axis ? 1 : shape[d];
  auto x = values<T>(outer * n * inner, 20);
  Ints out_shape = shape, indices(static_cast<size_t>(outer * k * inner));
  out_shape[static_cast<size_t>(axis)] = k;
  std::vector<T> out(indices.size());
  tp_view views[] = {view(x, dtype, shape), view(out, dtype, out_shape), view(indices, TRIPOD_I64, out_shape)};
  int64_t attrs[] = {axis, largest, 1, 0};
  ASSERT_EQ(tp_op_topk(run, views, attrs), 0) << message();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      auto at = [&](int64_t j) { return x[static_cast<size_t>((o * n + j) * inner + i)]; };
      Ints order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return largest ? at(a) > at(b) : at(a) < at(b); });
      for (int64_t j = 0; j < k; ++j) {
        auto got = static_cast<size_t>((o * k + j) * inner + i);
        ASSERT_EQ(indices[got], order[static_cast<size_t>(j)]);
        ASSERT_EQ(out[got], at(indices[got]));
      }
    }
}

TEST_F(Ops, TopK) {
  for (bool largest : {false, true}) {
    check_topk<float>(TRIPOD_F32, {3, 50, 4}, 1, 7, largest);
    check_topk<float>(TRIPOD_F32, {5, 33}, 1, 33, largest);
    check_topk<float>(TRIPOD_F32, {20000}, 0, 10, largest);
    check_topk<double>(TRIPOD_F64, {4, 100}, 0, 2, largest);
    check_topk<int8_t>(TRIPOD_I8, {2, 60}, 1, 20, largest);
    check_topk<int64_t>(TRIPOD_I64, {2, 60}, 1, 20, largest);
    check_topk<uint64_t>(TRIPOD_U64, {60}, 0, 20, largest);
    check_topk<uint16_t>(TRIPOD_U16, {60}, 0, 1, largest);
    check_topk<int32_t>(TRIPOD_I32, {6, 5}, 1, 0, largest);
  }
}

TEST_F(Ops, TopKOfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {-0.f, inf, kNan, 0.f, -inf, 3}, y(6);
  Ints indices(6);
  tp_view views[] = {view(x, TRIPOD_F32, {6}), view(y, TRIPOD_F32, {6}), view(indices, TRIPOD_I64, {6})};
  int64_t largest[] = {0, 1, 1, 0}, smallest[] = {0, 0, 1, 0};
  ASSERT_EQ(tp_op_topk(run, views, largest), 0);
  EXPECT_EQ(indices, (Ints{2, 1, 5, 0, 3, 4}));
  ASSERT_EQ(tp_op_topk(run, views, smallest), 0);
  EXPECT_EQ(indices, (Ints{4, 0, 3, 5, 1, 2}));
  EXPECT_TRUE(std::signbit(y[1]));
  std::vector<uint16_t> half = {0xc000, 0x3c00, 0x4000, 0xfc00}, top(2);  // -2 1 2 -inf
  Ints where(2);
  tp_view halves[] = {view(half, TRIPOD_F16, {4}), view(top, TRIPOD_F16, {2}), view(where, TRIPOD_I64, {2})};
  ASSERT_EQ(tp_op_topk(run, halves, largest), 0);
  EXPECT_EQ(where, (Ints{2, 1}));
}

TEST_F(Ops, TopKErrors) {
  std::vector<uint8_t> x(4), y(8);
  Ints indices(8);
  tp_view views[] = {view(x, TRIPOD_U8, {4}), view(y, TRIPOD_U8, {8}), view(indices, TRIPOD_I64, {8})};
  int64_t attrs[] = {0, 1, 1, 0};
  EXPECT_EQ(tp_op_topk(run, views, attrs), TRIPOD_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "node 0 Foo 'foo': k is larger than the axis: got 8, wanted 4");
  run->status = 0;
  views[0].dtype = TRIPOD_F8E5M2;
  views[1].shape[0] = 2;
  EXPECT_EQ(tp_op_topk(run, views, attrs), TRIPOD_UNSUPPORTED);
  EXPECT_EQ(message(), "node 0 Foo 'foo': TopK does not serve f8e5m2 elements");
}

TEST_F(Ops, NonZero) {
  auto x = values<float>(2 * 3 * 4, 3);
  x[0] = -0.f;
  x[1] = kNan;
  tp_view in = view(x, TRIPOD_F32, {2, 3, 4});
  int64_t attrs[] = {fake::kK, 0};
  ASSERT_EQ(tp_op_nonzero_count(run, &in, attrs), 0);
  Ints expected[3], y(static_cast<size_t>(3 * found()));
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != 0) {
      expected[0].push_back(static_cast<int64_t>(i / 12));
      expected[1].push_back(static_cast<int64_t>(i / 4 % 3));
      expected[2].push_back(static_cast<int64_t>(i % 4));
    }
  ASSERT_EQ(found(), static_cast<int64_t>(expected[0].size()));
  tp_view views[] = {in, view(y, TRIPOD_I64, {3, found()})};
  ASSERT_EQ(tp_op_nonzero(run, views, nullptr), 0);
  for (size_t d = 0; d < 3; ++d)
    for (size_t k = 0; k < expected[d].size(); ++k) ASSERT_EQ(y[d * expected[d].size() + k], expected[d][k]);
}

TEST_F(Ops, NonZeroOfScalar) {
  std::vector<uint8_t> x = {1};
  Ints y = {-1};
  tp_view views[] = {view(x, TRIPOD_BOOL, {}), view(y, TRIPOD_I64, {1, 1})};
  int64_t attrs[] = {fake::kK, 0};
  ASSERT_EQ(tp_op_nonzero_count(run, views, attrs), 0);
  ASSERT_EQ(found(), 1);
  ASSERT_EQ(tp_op_nonzero(run, views, nullptr), 0);
  EXPECT_EQ(y[0], 0);
}

TEST_F(Ops, Compress) {
  std::vector<int16_t> x(24), y(16);
  std::iota(x.begin(), x.end(), int16_t{0});
  std::vector<uint8_t> condition = {0, 1};  // shorter than the axis
  int64_t count_attrs[] = {1, fake::kK, 0}, axis = 1;
  tp_view views[] = {view(x, TRIPOD_I16, {2, 3, 4}), view(condition, TRIPOD_BOOL, {2}), view(y, TRIPOD_I16, {2, 1, 4})};
  ASSERT_EQ(tp_op_compress_count(run, views, count_attrs), 0);
  ASSERT_EQ(found(), 1);
  ASSERT_EQ(tp_op_compress(run, views, &axis), 0);
  y.resize(8);
  EXPECT_EQ(y, (std::vector<int16_t>{4, 5, 6, 7, 16, 17, 18, 19}));
  condition = {1, 0, 0, 0, 0, 1};
  views[1] = view(condition, TRIPOD_BOOL, {6});
  axis = -1;
  views[2] = view(y, TRIPOD_I16, {2});
  ASSERT_EQ(tp_op_compress(run, views, &axis), 0);
  EXPECT_EQ(y[1], 5);
  EXPECT_EQ(tp_op_compress_count(run, views, count_attrs), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_EQ(message(), "node 0 Foo 'foo': index 5 is not in [-3, 3)");
}

struct Unique {
  Ints first, inverse, counts, indices_out, inverse_out, counts_out;
};

// Both halves of Unique; y and the other outputs have their final size on return.
template <typename T>
Unique unique(Ops& t, std::vector<T>& x, int32_t dtype, const Ints& shape, int64_t axis, bool sorted,
              std::vector<T>& y) {
  int64_t total = static_cast<int64_t>(x.size()), n = axis < 0 ? total : shape[static_cast<size_t>(axis)];
  Unique u;
  for (Ints* w : {&u.first, &u.inverse, &u.counts, &u.inverse_out}) w->resize(static_cast<size_t>(n));
  std::vector<tp_view> views = {view(x, dtype, shape), view(u.first, TRIPOD_I64, {n}), view(u.inverse, TRIPOD_I64, {n}),
                                view(u.counts, TRIPOD_I64, {n})};
  int64_t attrs[] = {axis, sorted, fake::kK, 0};
  EXPECT_EQ(tp_op_unique_count(t.run, views.data(), attrs), 0) << t.message();
  Ints y_shape = shape;
  if (axis < 0)
    y_shape = {t.found()};
  else
    y_shape[static_cast<size_t>(axis)] = t.found();
  y.resize(static_cast<size_t>(std::accumulate(y_shape.begin(), y_shape.end(), int64_t{1}, std::multiplies<>())));
  u.indices_out.resize(static_cast<size_t>(t.found()));
  u.counts_out.resize(static_cast<size_t>(t.found()));
  views.push_back(view(y, dtype, y_shape));
  views.push_back(view(u.indices_out, TRIPOD_I64, {t.found()}));
  views.push_back(view(u.inverse_out, TRIPOD_I64, {n}));
  views.push_back(view(u.counts_out, TRIPOD_I64, {t.found()}));
  EXPECT_EQ(tp_op_unique(t.run, views.data(), attrs), 0);
  return u;
}

TEST_F(Ops, UniqueFlat) {
  auto x = values<int32_t>(300, 40);
  std::vector<int32_t> y;
  Unique u = unique(*this, x, TRIPOD_I32, {3, 100}, -1, true, y);
  std::map<int32_t, Ints> groups;
  for (size_t i = 0; i < x.size(); ++i) groups[x[i]].push_back(static_cast<int64_t>(i));
  ASSERT_EQ(y.size(), groups.size());
  size_t g = 0;
  for (auto& [value, members] : groups) {
    EXPECT_EQ(y[g], value);
    EXPECT_EQ(u.indices_out[g], members[0]);
    EXPECT_EQ(u.counts_out[g], static_cast<int64_t>(members.size()));
    for (int64_t m : members) EXPECT_EQ(u.inverse_out[static_cast<size_t>(m)], static_cast<int64_t>(g));
    ++g;
  }
}

TEST_F(Ops, UniqueUnsortedKeepsTheOrderOfOccurrence) {
  std::vector<float> x = {2, 1, 1, 3, 4, 3}, y;
  Unique u = unique(*this, x, TRIPOD_F32, {6}, -1, false, y);
  EXPECT_EQ(y, (std::vector<float>{2, 1, 3, 4}));
  EXPECT_EQ(u.indices_out, (Ints{0, 1, 3, 4}));
  EXPECT_EQ(u.inverse_out, (Ints{0, 1, 1, 2, 3, 2}));
  EXPECT_EQ(u.counts_out, (Ints{1, 2, 2, 1}));
}

TEST_F(Ops, UniqueOfRows) {
  std::vector<float> x = {1, 0, 0, 1, 0, 0, 2, 3, 4}, y;
  Unique u = unique(*this, x, TRIPOD_F32, {3, 3}, 0, true, y);
  EXPECT_EQ(y, (std::vector<float>{1, 0, 0, 2, 3, 4}));
  EXPECT_EQ(u.inverse_out, (Ints{0, 0, 1}));
  // [2, 4, 2] along axis 1: (1 1 2 1), (0 1 3 0), (1 0 0 1), (1 1 3 0)
  std::vector<float> z = {1, 1, 0, 1, 1, 0, 1, 1, 2, 1, 3, 0, 0, 1, 3, 0}, w;
  Unique v = unique(*this, z, TRIPOD_F32, {2, 4, 2}, 1, true, w);
  EXPECT_EQ(v.counts_out, (Ints{1, 1, 1, 1}));
  EXPECT_EQ(v.inverse_out, (Ints{2, 0, 1, 3}));
  EXPECT_EQ(w, (std::vector<float>{0, 1, 1, 0, 1, 1, 1, 1, 3, 0, 0, 1, 2, 1, 3, 0}));
}

TEST_F(Ops, UniqueNansAreOne) {
  std::vector<double> x = {1, kNan, -0., kNan, 0}, y;
  Unique u = unique(*this, x, TRIPOD_F64, {5}, -1, true, y);
  ASSERT_EQ(y.size(), 3u);
  EXPECT_TRUE(std::signbit(y[0]) && std::isnan(y[2]));
  EXPECT_EQ(u.counts_out, (Ints{2, 1, 2}));
}

struct NmsCase {
  std::vector<float> boxes, scores;
  Ints max_boxes = {3}, work = Ints(300);
  std::vector<float> iou = {0.5f}, score = {0.f};
  int64_t batches = 1, classes = 1, centers = 0, capacity = 100;

  int32_t run(Ops& t, Ints& rows) {
    auto n = static_cast<int64_t>(boxes.size()) / 4 / batches;
    tp_view views[] = {view(boxes, TRIPOD_F32, {batches, n, 4}), view(scores, TRIPOD_F32, {batches, classes, n}),
                       max_boxes.empty() ? kAbsent : view(max_boxes, TRIPOD_I64, {}),
                       iou.empty() ? kAbsent : view(iou, TRIPOD_F32, {}),
                       score.empty() ? kAbsent : view(score, TRIPOD_F32, {1}), view(work, TRIPOD_I64, {capacity, 3})};
    int64_t attrs[] = {centers, fake::kK, 0};
    if (int32_t code = tp_op_nms_count(t.run, views, attrs)) return code;
    rows.resize(static_cast<size_t>(3 * t.found()));
    tp_view fill[] = {views[5], view(rows, TRIPOD_I64, {t.found(), 3})};
    return tp_op_nms(t.run, fill, nullptr);
  }
};

TEST_F(Ops, Nms) {
  const std::vector<float> boxes = {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, -0.1f, 1, 0.9f, 0, 10, 1, 11, 0, 10.1f, 1, 11.1f, 0, 100, 1, 101};
  Ints rows;
  NmsCase c;
  c.boxes = boxes;
  c.scores = {0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f};
  ASSERT_EQ(c.run(*this, rows), 0) << message();
  EXPECT_EQ(rows, (Ints{0, 0, 3, 0, 0, 0, 0, 0, 5}));
  c.score = {0.4f};
  ASSERT_EQ(c.run(*this, rows), 0);
  EXPECT_EQ(rows, (Ints{0, 0, 3, 0, 0, 0}));
  c.score = {};
  c.max_boxes = {1};
  ASSERT_EQ(c.run(*this, rows), 0);
  EXPECT_EQ(rows, (Ints{0, 0, 3}));
  c.max_boxes = {};
  ASSERT_EQ(c.run(*this, rows), 0);
  EXPECT_TRUE(rows.empty());
}

TEST_F(Ops, NmsFlippedCornersCentersAndClasses) {
  Ints rows;
  NmsCase c;
  c.boxes = {1, 1, 0, 0, 0, 0.1f, 1, 1.1f, 0, 0.9f, 1, -0.1f, 0, 10, 1, 11, 1, 10.1f, 0, 11.1f, 1, 101, 0, 100};
  c.scores = {0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f};
  ASSERT_EQ(c.run(*this, rows), 0);
  EXPECT_EQ(rows, (Ints{0, 0, 3, 0, 0, 0, 0, 0, 5}));
  c.centers = 1;
  c.boxes = {0.5f, 0.5f, 1, 1, 0.5f, 0.6f, 1, 1, 0.5f, 0.4f, 1, 1, 0.5f, 10.5f, 1, 1, 0.5f, 10.6f, 1, 1, 0.5f, 100.5f, 1, 1};
  ASSERT_EQ(c.run(*this, rows), 0);
  EXPECT_EQ(rows, (Ints{0, 0, 3, 0, 0, 0, 0, 0, 5}));
  c.classes = 2;
  c.max_boxes = {2};
  c.scores.insert(c.scores.end(), {0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f});
  ASSERT_EQ(c.run(*this, rows), 0);
  EXPECT_EQ(rows, (Ints{0, 0, 3, 0, 0, 0, 0, 1, 3, 0, 1, 0}));
}

TEST_F(Ops, NmsErrors) {
  Ints rows;
  NmsCase c;
  c.boxes = {0, 0, 1, 1, 0, 10, 1, 11};
  c.scores = {1, 1};
  c.iou = {1.5f};
  EXPECT_EQ(c.run(*this, rows), TRIPOD_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "node 0 Foo 'foo': iou_threshold is not in [0, 1]");
  run->status = 0;
  c.iou = {0.5f};
  c.capacity = 1;
  EXPECT_EQ(c.run(*this, rows), TRIPOD_RUNTIME_ERROR);
  EXPECT_EQ(message(), "node 0 Foo 'foo': more boxes than there is memory for: got 2, wanted 1");
}

TEST_F(Ops, CumSum) {
  for (int64_t axis : {0, 1, 2})
    for (int64_t exclusive : {0, 1})
      for (int64_t reverse : {0, 1}) {
        const Ints shape = {3, 5, 37};
        auto x = values<int32_t>(3 * 5 * 37, 1000), y = x;
        int64_t stride = axis == 0 ? 5 * 37 : axis == 1 ? 37 : 1, n = shape[static_cast<size_t>(axis)];
        tp_view views[] = {view(x, TRIPOD_I32, shape), kAbsent, view(y, TRIPOD_I32, shape)};
        int64_t attrs[] = {axis, exclusive, reverse, 0};
        ASSERT_EQ(tp_op_cumsum(run, views, attrs), 0);
        for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
          int64_t at = i / stride % n, sum = 0;
          for (int64_t j = 0; j < n; ++j)
            if (reverse ? j > at : j < at) sum += x[static_cast<size_t>(i + (j - at) * stride)];
          if (!exclusive) sum += x[static_cast<size_t>(i)];
          ASSERT_EQ(y[static_cast<size_t>(i)], sum);
        }
      }
}

TEST_F(Ops, CumSumInPlaceWithAxisInput) {
  std::vector<double> x = {1, 2, 3, 4};
  std::vector<int32_t> axis = {-1};
  tp_view views[] = {view(x, TRIPOD_F64, {2, 2}), view(axis, TRIPOD_I32, {}), view(x, TRIPOD_F64, {2, 2})};
  int64_t attrs[] = {0, 1, 0, 0};
  ASSERT_EQ(tp_op_cumsum(run, views, attrs), 0);
  EXPECT_EQ(x, (std::vector<double>{0, 1, 0, 3}));
  axis = {2};
  EXPECT_EQ(tp_op_cumsum(run, views, attrs), TRIPOD_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "node 0 Foo 'foo': axis is out of range for the rank: got 2, wanted 2");
}

TEST_F(Ops, ScatterElements) {
  std::vector<float> data = {1, 2, 3, 4, 5, 6}, updates = {10, 20, 30, 40}, y(6);
  Ints indices = {0, -1, 2, 2};
  tp_view views[] = {view(data, TRIPOD_F32, {2, 3}), view(indices, TRIPOD_I64, {2, 2}), view(updates, TRIPOD_F32, {2, 2}),
                     view(y, TRIPOD_F32, {2, 3})};
  auto scatter = [&](int64_t axis, int64_t reduction) {
    int64_t attrs[] = {axis, reduction, 1};
    EXPECT_EQ(tp_op_scatter_elements(run, views, attrs), 0) << message();
    return y;
  };
  EXPECT_EQ(scatter(1, kTpNone), (std::vector<float>{10, 2, 20, 4, 5, 40}));
  EXPECT_EQ(scatter(1, kTpAdd), (std::vector<float>{11, 2, 23, 4, 5, 76}));
  EXPECT_EQ(scatter(1, kTpMul), (std::vector<float>{10, 2, 60, 4, 5, 7200}));
  EXPECT_EQ(scatter(1, kTpMax), (std::vector<float>{10, 2, 20, 4, 5, 40}));
  EXPECT_EQ(scatter(1, kTpMin), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  indices = {1, 0, 0, 1};
  EXPECT_EQ(scatter(0, kTpNone), (std::vector<float>{30, 20, 3, 10, 40, 6}));
  updates[0] = kNan;
  EXPECT_TRUE(std::isnan(scatter(0, kTpMax)[3]));
  indices = {0, 0, 0, -3};
  int64_t attrs[] = {0, kTpNone, 1};
  EXPECT_EQ(tp_op_scatter_elements(run, views, attrs), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_EQ(message(), "node 7 Gather 'emb': index -3 is not in [-2, 2)");
}

TEST_F(Ops, ScatterOfHalvesAndSmallIntegers) {
  std::vector<uint16_t> half = {0x3c00}, more = {0x3c00, 0x4000}, sum(1);  // 1 + 1 + 2
  Ints twice = {0, 0};
  tp_view views[] = {view(half, TRIPOD_BF16, {1}), view(twice, TRIPOD_I64, {2}), view(more, TRIPOD_BF16, {2}),
                     view(sum, TRIPOD_BF16, {1})};
  for (auto& v : views) v.dtype = v.dtype == TRIPOD_BF16 ? static_cast<int32_t>(TRIPOD_F16) : v.dtype;
  int64_t add[] = {0, kTpAdd, 0}, multiply[] = {0, kTpMul, 0};
  ASSERT_EQ(tp_op_scatter_elements(run, views, add), 0);
  EXPECT_EQ(sum[0], 0x4400);
  std::vector<uint8_t> bytes = {200}, other = {100, 3}, out(1);
  tp_view small[] = {view(bytes, TRIPOD_U8, {1}), view(twice, TRIPOD_I64, {2}), view(other, TRIPOD_U8, {2}),
                     view(out, TRIPOD_U8, {1})};
  ASSERT_EQ(tp_op_scatter_elements(run, small, add), 0);
  EXPECT_EQ(out[0], (200 + 100 + 3) % 256);
  ASSERT_EQ(tp_op_scatter_elements(run, small, multiply), 0);
  EXPECT_EQ(out[0], 200 * 100 * 3 % 256);
}

TEST_F(Ops, ScatterNd) {
  std::vector<int64_t> data(12), updates = {1, 2, 3, 4, 5, 6}, y(12);
  Ints indices = {2, 0, 2};
  tp_view views[] = {view(data, TRIPOD_I64, {3, 2, 2}), view(indices, TRIPOD_I64, {3, 1}),
                     view(updates, TRIPOD_I64, {3, 2}), view(y, TRIPOD_I64, {3, 2, 2})};
  indices = {2, 0, 0, 1, 2, -2};
  views[1] = view(indices, TRIPOD_I64, {3, 2});
  int64_t none[] = {kTpNone, 0}, add[] = {kTpAdd, 0};
  ASSERT_EQ(tp_op_scatter_nd(run, views, none), 0);
  EXPECT_EQ(y, (Ints{0, 0, 3, 4, 0, 0, 0, 0, 5, 6, 0, 0}));
  ASSERT_EQ(tp_op_scatter_nd(run, views, add), 0);
  EXPECT_EQ(y, (Ints{0, 0, 3, 4, 0, 0, 0, 0, 6, 8, 0, 0}));
  indices[1] = 2;
  EXPECT_EQ(tp_op_scatter_nd(run, views, none), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_EQ(message(), "node 0 Foo 'foo': index 2 is not in [-2, 2)");
}

}  // namespace
