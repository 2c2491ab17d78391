// Arenas: plans that never overlap, memory that is shared where lives allow it, and no new plan for the same sizes.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/internal.h"
#include "runtime_fake_model.h"

namespace {

using namespace tripod::rt;

struct Arenas : testing::Test {
  tripod_context* context = new_context();
  tp_run* run = &context->run;
  ~Arenas() override { delete_context(context); }
};

TEST_F(Arenas, BuffersThatLiveTogetherDoNotOverlap) {
  const tp_segment& segment = tp_the_model.segments[2];
  for (int64_t n : {1, 2, 99}) {
    run->dims[fake::kN] = n;
    char* base = tp_enter_segment(run, 2);
    ASSERT_TRUE(base);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(base) % 64, 0u);
    const int64_t *at = tp_offsets(run, 2), *size = run->arenas[2].sizes;
    int64_t total = 0, together = 0, end = 0;
    for (int32_t a = 0; a < segment.num_buffers; ++a) {
      ASSERT_EQ(at[a] % 64, 0);
      ASSERT_LE(at[a] + size[a], run->arenas[2].memory.capacity);
      for (int32_t b = 0; b < a; ++b) {
        const tp_buffer &p = segment.buffers[a], &q = segment.buffers[b];
        if (p.first > q.last || q.first > p.last || size[a] == 0 || size[b] == 0) continue;
        ASSERT_TRUE(at[a] + size[a] <= at[b] || at[b] + size[b] <= at[a]) << a << ' ' << b;
      }
      total += size[a];
      end = std::max(end, at[a] + size[a]);
    }
    for (int32_t step = 0; step < 340; ++step) {  // the least that any plan needs
      int64_t alive = 0;
      for (int32_t a = 0; a < segment.num_buffers; ++a)
        if (segment.buffers[a].first <= step && step <= segment.buffers[a].last) alive += size[a];
      together = std::max(together, alive);
    }
    EXPECT_LE(end, together * 13 / 10) << "far from the optimum";
    EXPECT_LT(end, total / 3);
  }
}

TEST_F(Arenas, SharesAndKeeps) {
  run->dims[fake::kN] = 100;
  char* base = tp_enter_segment(run, 0);
  const int64_t* at = tp_offsets(run, 0);
  EXPECT_EQ(at[0], at[2]);
  EXPECT_NE(at[0], at[1]);
  EXPECT_EQ(run->arenas[0].memory.capacity, 2 * 1600);
  int64_t* plan = run->arenas[0].sizes;
  EXPECT_EQ(tp_enter_segment(run, 0), base);
  EXPECT_EQ(run->arenas[0].sizes, plan);  // a new plan would have swapped it
  run->dims[fake::kN] = 50;
  EXPECT_EQ(tp_enter_segment(run, 0), base);  // fits
  run->dims[fake::kN] = 0;
  EXPECT_TRUE(tp_enter_segment(run, 0));
}

TEST_F(Arenas, OutOfMemoryIsAnError) {
  run->dims[fake::kN] = INT64_MAX / 64;
  EXPECT_EQ(tp_enter_segment(run, 0), nullptr);
  EXPECT_EQ(run->status, TRIPOD_OUT_OF_MEMORY);
  EXPECT_EQ(std::string(run->message).substr(0, 43), "out of memory: segment 0 of the model needs");
  run->status = 0;
  run->dims[fake::kN] = 1;
  EXPECT_TRUE(tp_enter_segment(run, 0));
}

}  // namespace
