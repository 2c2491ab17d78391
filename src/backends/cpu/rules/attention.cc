// Attention without the score matrix in memory: softmax over blocks of keys while they pass by.
//
//   pack   K and V in panels of 16 keys: K[panel, d, key%16], V[panel, column/16, key%16, column%16], zero-filled
//   task   parallel over batch x head x blocks of queries; in each, one block of keys after the other:
//     scores   S = Q K^T, register tiles of rows x 16 keys
//     rows     S becomes exp(logit - m), m the greatest logit so far; what was summed up before shrinks to the new m
//     values   O += S V, register tiles of rows x 16 columns
//   and in the end O / (sum of the exponentials)
//
// S, O and the rows' maxima and sums are the thread's scratch memory, so that memory holds K and V once more but nothing
// of the size queries x keys. A block of keys that a causal mask hides from all rows of the block is skipped. Long sums
// are made of chains of about kChain products, whatever the sizes; the order of a sum depends on shapes only.
#include <algorithm>

#include "backends/cpu/rules/rules.h"
#include "rules/attention_form.h"

namespace tripod::cpu {

using namespace rules;

using loop::Op;
using loop::Scope;

namespace {

constexpr int64_t kPanel = 16;         // keys, and columns of V
constexpr int64_t kKeys = 256;         // of a block
constexpr int64_t kQueries = 48;       // of a block, at most
constexpr int64_t kKeysOfChain = kChain / kPanel;  // in panels

class Flash {
 public:
  Flash(const loop::Function& f, AttentionForm a, sym::Context& c, const CpuTarget& t) : f_(f), a_(std::move(a)), c_(c) {
    mr_ = t.tile_rows();
    if (auto n = a_.queries.constant()) mr_ = std::clamp<int64_t>(*n, 1, mr_);
    tiles_ = std::max<int64_t>(1, kQueries / mr_);
    if (auto n = a_.queries.constant()) tiles_ = std::clamp<int64_t>((*n + mr_ - 1) / mr_, 1, tiles_);
    depth_ = a_.depth.value(), columns_ = a_.columns.value();
    column_panels_ = (columns_ + kPanel - 1) / kPanel;
    panels_ = sym::ceildiv(a_.keys, kPanel);
    block_panels_ = kKeys / kPanel;
    if (auto n = panels_.constant()) block_panels_ = std::clamp<int64_t>(*n, 1, block_panels_);
  }

  RuleResult run() {
    const Buffer& k = only_load(a_.k)->buffer;
    const Indices outer = {k->shape[0], k->shape[1], panels_};
    const auto buffer = [&](const char* name, Indices shape) { return loop::make_buffer(name, DType::f32, std::move(shape), Scope::global); };
    keys_ = buffer("packed_keys", {outer[0], outer[1], outer[2], at(depth_), at(kPanel)});
    values_ = buffer("packed_values", {outer[0], outer[1], outer[2], at(column_panels_), at(kPanel), at(kPanel)});
    loop::Function r = f_;
    r.body = loop::alloc(keys_, loop::alloc(values_, loop::seq({pack(outer), tasks()})));
    return {{true, ""}, r};
  }

 private:
  Index at(int64_t n) const { return c_.constant(n); }
  Stmt lanes(const char* name, const std::function<Stmt(Index)>& f) { return vector(c_, name, kPanel, f); }
  Stmt each(const std::function<Stmt(Index, Index)>& f) {
    return unrolled(c_, "i", mr_, [&](Index i) { return lanes("j", [&](Index j) { return f(i, j); }); });
  }
  // The lanes become one, in lane 0: in halves, number by number (parts of a vector would go through memory).
  Stmt combine(const Buffer& b, Op op) {
    std::vector<Stmt> all;
    for (int64_t n = kPanel / 2; n >= 1; n /= 2)
      for (int64_t l = 0; l < n; ++l) all.push_back(loop::store(b, {at(l)}, loop::make(op, {loop::load(b, {at(l)}), loop::load(b, {at(l + n)})})));
    return loop::seq(all);
  }
  static Expr number(double v) { return loop::constant(DType::f32, v); }
  Expr exponential(const Expr& e) const { return loop::make(a_.exponential, {e}); }
  static Expr is_hidden(const Expr& e) { return loop::eq(e, number(-kInfinity)); }

  // --- pack ---------------------------------------------------------------------------------------------------------
  // An operand's expression with its load elsewhere, 0 where the guard is false.
  static Expr element(const Expr& operand, Indices place, Index guard) {
    const Expr load = only_load(operand);
    const Expr there = loop::load(load->buffer, std::move(place));
    const Expr v = replace_load(operand, load, there);
    return sym::proved(guard) ? v : guard_loads(v, guard);
  }

  Stmt pack(const Indices& outer) {
    return parallel(c_, "panel", sym::product(c_, outer), 1, [&](Index p) {
      const Indices o = unflatten(p, outer);
      const auto copy = [&](bool whole) {
        const auto inside = [&](Index key) { return whole ? at(1) : sym::lt(key, a_.keys); };
        const Stmt keys = serial(c_, "d", at(depth_), [&](Index d) {
          return lanes("j", [&](Index j) {
            const Index key = o[2] * kPanel + j;
            return loop::store(keys_, {o[0], o[1], o[2], d, j}, element(a_.k, {o[0], o[1], key, d}, inside(key)));
          });
        });
        const Stmt values = serial(c_, "c", at(column_panels_), [&](Index c) {
          return serial(c_, "t", at(kPanel), [&](Index t) {
            const Index key = o[2] * kPanel + t;
            const auto row = [&](bool zero) {
              return lanes("j", [&](Index j) {
                const Index column = c * kPanel + j, fits = columns_ % kPanel == 0 ? at(1) : sym::lt(column, at(columns_));
                return loop::store(values_, {o[0], o[1], o[2], c, t, j}, zero ? number(0) : element(a_.v, {o[0], o[1], key, column}, fits));
              });
            };
            if (whole) return row(false);
            return loop::branch(loop::from_index(DType::b1, sym::lt(key, a_.keys)), row(false), row(true));
          });
        });
        return loop::seq({keys, values});
      };
      if (sym::mod(a_.keys, kPanel).is_const(0)) return copy(true);
      return loop::branch(loop::from_index(DType::b1, sym::le(o[2] * kPanel + kPanel, a_.keys)), copy(true), copy(false));
    });
  }

  // --- task ---------------------------------------------------------------------------------------------------------
  // One task: its head, its first query, how many register tiles of rows it has.
  struct Task {
    Index batch, head, first, tiles;
    Buffer scores, sums, maxima, results;  // [row, key], [row, lane], [row], [row, column]
  };
  struct Keys {
    Index first, panels;  // the first panel of the block, and how many it has
  };

  Index last_query() const { return a_.queries - 1; }

  Stmt tasks() {
    const int64_t rows = mr_ * tiles_;
    const Index blocks = sym::ceildiv(a_.queries, rows);
    const Indices outer = {a_.batch, a_.heads, blocks};
    return parallel(c_, "task", sym::product(c_, outer), 1, [&](Index task) {
      const Indices o = unflatten(task, outer);
      const auto scratch = [&](const char* name, Indices shape) { return loop::make_buffer(name, DType::f32, std::move(shape), Scope::local); };
      Task t{o[0], o[1], o[2] * rows, {}, {}, {}, {}, {}};
      t.tiles = sym::min(at(tiles_), sym::ceildiv(a_.queries - t.first, mr_));
      // The padding keeps rows from meeting in one set of the cache.
      t.scores = scratch("scores", {at(rows), at(block_panels_ * kPanel + kPanel)});
      t.sums = scratch("sums", {at(rows), at(kPanel)});
      t.maxima = scratch("maxima", {at(rows)});
      t.results = scratch("results", {at(rows), at(column_panels_ * kPanel)});
      const Stmt body = loop::seq({clear(t), blocks_of_keys(t), finish(t)});
      return loop::alloc(t.scores, loop::alloc(t.sums, loop::alloc(t.maxima, loop::alloc(t.results, body))));
    });
  }

  Stmt clear(const Task& t) {
    return serial(c_, "row", t.tiles * mr_, [&](Index r) {
      return loop::seq({loop::store(t.maxima, {r}, number(-kInfinity)),
                        lanes("j", [&](Index j) { return loop::store(t.sums, {r, j}, number(0)); }),
                        serial(c_, "c", at(column_panels_), [&](Index c) {
                          return lanes("j", [&](Index j) { return loop::store(t.results, {r, c * kPanel + j}, number(0)); });
                        })});
    });
  }

  Stmt blocks_of_keys(const Task& t) {
    return serial(c_, "block", sym::ceildiv(panels_, block_panels_), [&](Index b) {
      const Keys k{b * block_panels_, sym::min(at(block_panels_), panels_ - b * block_panels_)};
      const auto body = [&] { return loop::seq({scores(t, k), softmax(t, k), values(t, k)}); };
      if (!a_.visible) return body();
      const Index last = sym::min(t.first + mr_ * tiles_ - 1, last_query());
      return where(sym::substitute(a_.visible, {{a_.key, k.first * kPanel}, {a_.query, last}}), body);
    });
  }

  // --- scores -------------------------------------------------------------------------------------------------------
  Stmt scores(const Task& t, const Keys& k) {
    return serial(c_, "panel", k.panels, [&](Index p) {
      return serial(c_, "tile", t.tiles, [&](Index tile) {
        const Buffer acc = loop::make_buffer("acc", DType::f32, {at(mr_), at(kPanel)}, Scope::reg);
        const int64_t chains = depth_ <= kChain * 3 / 2 ? 1 : (depth_ + kChain - 1) / kChain;
        std::vector<Stmt> all;
        for (int64_t chain = 0, from = 0; chain < chains; ++chain) {
          const int64_t to = depth_ * (chain + 1) / chains;
          all.push_back(each([&](Index i, Index j) { return loop::store(acc, {i, j}, number(0)); }));
          all.push_back(unrolled_by(c_, "d", at(to - from), 4, [&](Index d) { return multiply(t, k, tile, p, from + d, acc); }));
          all.push_back(each([&](Index i, Index j) {
            const Indices to_score = {tile * mr_ + i, p * kPanel + j};
            const Expr sum = loop::load(acc, {i, j});
            return loop::store(t.scores, to_score, chain == 0 ? sum : loop::load(t.scores, to_score) + sum);
          }));
          from = to;
        }
        return loop::alloc(acc, loop::seq(all));
      });
    });
  }

  Stmt multiply(const Task& t, const Keys& k, Index tile, Index panel, Index d, const Buffer& acc) {
    const Indices kv = only_load(a_.k)->indices;
    const auto kv_at = [&](int dim) { return sym::substitute(kv[static_cast<size_t>(dim)], {{a_.b, t.batch}, {a_.h, t.head}}); };
    return each([&](Index i, Index j) {
      const Index row = t.first + tile * mr_ + i;
      const bool whole = sym::mod(a_.queries, mr_).is_const(0);
      const Expr q = loop::substitute(a_.q, {{a_.b, t.batch}, {a_.h, t.head}, {a_.query, whole ? row : sym::min(row, last_query())}, {a_.d, d}});
      return loop::store(acc, {i, j}, loop::fma(q, loop::load(keys_, {kv_at(0), kv_at(1), k.first + panel, d, j}), loop::load(acc, {i, j})));
    });
  }

  // --- rows ---------------------------------------------------------------------------------------------------------
  Stmt softmax(const Task& t, const Keys& k) {
    return serial(c_, "row", t.tiles * mr_, [&](Index r) {
      const auto reg = [&](const char* name, int64_t n) { return loop::make_buffer(name, DType::f32, {at(n)}, Scope::reg); };
      const Buffer most = reg("most", kPanel), shift = reg("shift", 1), shrink = reg("shrink", 1), sum = reg("sum", kPanel);
      const Index zero = at(0);
      std::vector<Stmt> all = {lanes("j", [&](Index j) { return loop::store(most, {j}, number(-kInfinity)); }), logits(t, k, r, most)};
      all.push_back(combine(most, Op::max));
      const Expr before = loop::load(t.maxima, {r}), m = loop::load(shift, {zero});
      all.push_back(loop::store(shift, {zero}, loop::max(before, loop::load(most, {zero}))));
      // A row that has seen no key yet has -inf here; then nothing is shifted.
      all.push_back(loop::store(shrink, {zero}, exponential(before - loop::select(is_hidden(m), number(0), m))));
      all.push_back(loop::store(t.maxima, {r}, m));
      all.push_back(loop::store(shift, {zero}, loop::select(is_hidden(m), number(0), m)));
      const Expr less = loop::load(shrink, {zero});
      all.push_back(lanes("j", [&](Index j) { return loop::store(sum, {j}, loop::load(t.sums, {r, j}) * less); }));
      all.push_back(serial(c_, "panel", k.panels, [&](Index p) {
        return lanes("j", [&](Index j) {
          const Indices place = {r, p * kPanel + j};
          return loop::seq({loop::store(t.scores, place, exponential(loop::load(t.scores, place) - m)),
                            loop::store(sum, {j}, loop::load(sum, {j}) + loop::load(t.scores, place))});
        });
      }));
      all.push_back(lanes("j", [&](Index j) { return loop::store(t.sums, {r, j}, loop::load(sum, {j})); }));
      all.push_back(serial(c_, "c", at(column_panels_), [&](Index c) {
        return lanes("j", [&](Index j) {
          const Indices place = {r, c * kPanel + j};
          return loop::store(t.results, place, loop::load(t.results, place) * less);
        });
      }));
      Stmt s = loop::seq(all);
      for (const Buffer& b : {most, shift, shrink, sum}) s = loop::alloc(b, s);
      return s;
    });
  }

  // Scores become logits; keys beyond the end are hidden. `most`: the greatest of each lane.
  Stmt logits(const Task& t, const Keys& k, Index r, const Buffer& most) {
    const Index row = t.first + r, query = sym::mod(a_.queries, mr_).is_const(0) ? row : sym::min(row, last_query());
    const auto panel = [&](Index p, bool whole) {
      return lanes("j", [&](Index j) {
        const Index key = (k.first + p) * kPanel + j, inside = sym::lt(key, a_.keys);
        const Indices place = {r, p * kPanel + j};
        const Expr score = loop::load(t.scores, place);
        const sym::Map m = {{a_.b, t.batch}, {a_.h, t.head}, {a_.query, query}, {a_.key, key}};
        Expr v = a_.logit(score, m);
        if (!whole) v = loop::select(loop::from_index(DType::b1, inside), guard_loads(v, inside), number(-kInfinity));
        return loop::seq({loop::store(t.scores, place, v), loop::store(most, {j}, loop::max(loop::load(most, {j}), loop::load(t.scores, place)))});
      });
    };
    if (sym::mod(a_.keys, kPanel).is_const(0)) return serial(c_, "panel", k.panels, [&](Index p) { return panel(p, true); });
    const Index whole = sym::min(k.panels, sym::floordiv(a_.keys, kPanel) - k.first);
    return loop::seq({serial(c_, "panel", whole, [&](Index p) { return panel(p, true); }),
                      where(sym::lt(whole, k.panels), [&] { return panel(whole, false); })});
  }

  // --- values -------------------------------------------------------------------------------------------------------
  Stmt values(const Task& t, const Keys& k) {
    const Indices kv = only_load(a_.v)->indices;
    const auto kv_at = [&](int dim) { return sym::substitute(kv[static_cast<size_t>(dim)], {{a_.b, t.batch}, {a_.h, t.head}}); };
    return serial(c_, "c", at(column_panels_), [&](Index c) {
      return serial(c_, "tile", t.tiles, [&](Index tile) {
        return serial(c_, "chain", sym::ceildiv(k.panels, kKeysOfChain), [&](Index chain) {
          const Buffer acc = loop::make_buffer("acc", DType::f32, {at(mr_), at(kPanel)}, Scope::reg);
          const Index from = chain * kKeysOfChain;
          const Stmt products = serial(c_, "panel", sym::min(at(kKeysOfChain), k.panels - from), [&](Index p) {
            return unrolled_by(c_, "t", at(kPanel), 4, [&](Index key) {
              return each([&](Index i, Index j) {
                const Expr e = loop::load(t.scores, {tile * mr_ + i, (from + p) * kPanel + key});
                const Expr v = loop::load(values_, {kv_at(0), kv_at(1), k.first + from + p, c, key, j});
                return loop::store(acc, {i, j}, loop::fma(e, v, loop::load(acc, {i, j})));
              });
            });
          });
          return loop::alloc(acc, loop::seq({each([&](Index i, Index j) { return loop::store(acc, {i, j}, number(0)); }), products,
                                             each([&](Index i, Index j) {
                                               const Indices place = {tile * mr_ + i, c * kPanel + j};
                                               return loop::store(t.results, place, loop::load(t.results, place) + loop::load(acc, {i, j}));
                                             })}));
        });
      });
    });
  }

  Stmt finish(const Task& t) {
    return serial(c_, "row", sym::min(at(mr_ * tiles_), a_.queries - t.first), [&](Index r) {
      const Buffer sum = loop::make_buffer("sum", DType::f32, {at(kPanel)}, Scope::reg);
      std::vector<Stmt> all = {lanes("j", [&](Index j) { return loop::store(sum, {j}, loop::load(t.sums, {r, j})); })};
      all.push_back(combine(sum, Op::add));
      const Expr total = loop::load(sum, {at(0)});
      const Expr divisor = loop::select(loop::eq(total, number(0)), number(1), total);
      all.push_back(vectors(c_, "c", at(columns_), kPanel, [&](Index c) {
        const Expr v = loop::load(t.results, {r, c}) / divisor;
        return loop::store(a_.result, {t.batch, t.head, t.first + r, c}, loop::cast(v, a_.result->dtype));
      }));
      return loop::alloc(sum, loop::seq(all));
    });
  }

  const loop::Function& f_;
  const AttentionForm a_;
  sym::Context& c_;
  int64_t mr_, tiles_, depth_, columns_, column_panels_, block_panels_;  // tiles_: of a block of queries
  Index panels_;
  Buffer keys_, values_;
};

}  // namespace

RuleResult attention(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  std::string why;
  const loop::Function inlined = inline_elementwise(f, c);
  auto a = match_attention(inlined, &why);
  if (!a) return {loop::not_applicable(why), {}};
  return Flash(inlined, std::move(*a), c, target).run();
}

}  // namespace tripod::cpu
