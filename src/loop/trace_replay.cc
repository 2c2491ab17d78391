// Runs the steps of a trace again, on the compute form that it was recorded on.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

struct BadStep : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr std::string_view kScopes[] = {"global", "constant", "shared", "local", "reg"};
constexpr std::string_view kAxes[] = {"grid_x",  "grid_y",  "grid_z",  "cluster_x",
                                      "block_x", "block_y", "block_z", "warp"};

class Replay {
 public:
  Replay(Schedule& s, ScheduleState& state) : s_(s), state_(state) {}

  void run(const Trace& t) {
    for (const TraceStep& step : t.steps) {
      if (!s_.ok()) return;
      try {
        one(step);
      } catch (const BadStep& e) {
        s_.fail("trace step " + step.primitive + ": " + e.what());
      } catch (const std::invalid_argument& e) {
        s_.fail("trace step " + step.primitive + ": " + e.what());
      }
    }
  }

 private:
  void one(const TraceStep& t) {
    step_ = &t;
    const std::string& p = t.primitive;
    if (p == "split") {
      const auto [o, i] = s_.split(loop(0), expr(attribute(0)));
      return made({o, i}, {});
    }
    if (p == "fuse") return made({s_.fuse(loops())}, {});
    if (p == "reorder") return s_.reorder(loops());
    if (p == "parallel") return s_.parallel(loop(0), integer(attribute(0)));
    if (p == "vectorise") return s_.vectorise(loop(0));
    if (p == "unroll") return s_.unroll(loop(0));
    if (p == "bind")
      return s_.bind(loop(0), static_cast<LoopKind>(static_cast<size_t>(LoopKind::grid_x) + row(kAxes, attribute(0))));
    if (p == "compute_at") return s_.compute_at(block(0), loop(1));
    if (p == "reverse_compute_at") return s_.reverse_compute_at(block(0), loop(1));
    if (p == "inline_producer") return s_.inline_producer(block(0));
    if (p == "cache_read") return made({}, {s_.cache_read(block(0), buffer(1), scope(0), layout(attribute(1)))});
    if (p == "cache_write") return made({}, {s_.cache_write(block(0), scope(0))});
    if (p == "decompose_reduction") return made({}, {s_.decompose_reduction(block(0), loop(1))});
    if (p == "rfactor") return made({}, {s_.rfactor(block(0), loop(1))});
    if (p == "set_scope") return s_.set_scope(buffer(0), scope(0));
    if (p == "set_layout") return s_.set_layout(buffer(0), layout(attribute(0)));
    if (p == "set_name") {
      s_.set_name(block(0), attribute(0));
      blocks_[attribute(0)] = {attribute(0)};
      return;
    }
    throw BadStep("there is no such primitive");
  }

  // What the trace calls its results, and what they are called now.
  void made(const std::vector<Loop>& ls, const std::vector<Block>& bs) {
    if (!s_.ok()) return;
    if (step_->results.size() != ls.size() + bs.size()) throw BadStep("wrong number of results");
    for (size_t i = 0; i < ls.size(); ++i) loops_[step_->results[i]] = ls[i];
    for (size_t i = 0; i < bs.size(); ++i) blocks_[step_->results[ls.size() + i]] = bs[i];
  }

  const std::string& handle(size_t i) const {
    if (i >= step_->handles.size()) throw BadStep("a handle is missing");
    return step_->handles[i];
  }
  const std::string& attribute(size_t i) const {
    if (i >= step_->attributes.size()) throw BadStep("an attribute is missing");
    return step_->attributes[i];
  }

  Loop loop_named(const std::string& name) {
    if (const auto it = loops_.find(name); it != loops_.end()) return it->second;
    for (const auto& [node, t] : state_.loop_of)
      if (node->name == name) return {Index(node)};
    throw BadStep("there is no loop '" + name + "'");
  }
  Loop loop(size_t i) { return loop_named(handle(i)); }
  std::vector<Loop> loops() {
    std::vector<Loop> out;
    for (const std::string& name : step_->handles) out.push_back(loop_named(name));
    return out;
  }
  Block block(size_t i) const {
    const auto it = blocks_.find(handle(i));
    return it == blocks_.end() ? Block{handle(i)} : it->second;
  }
  Buffer buffer(size_t i) const {
    const Buffer b = state_.find_buffer(handle(i));
    if (!b) throw BadStep("there is no buffer '" + handle(i) + "'");
    return b;
  }

  Index expr(std::string_view text, const std::vector<Index>& also = {}) const {
    return sym::parse(state_.context, text, [&](std::string_view name) -> Index {
      for (const std::vector<Index>* list : {&also, static_cast<const std::vector<Index>*>(&state_.source.dims)})
        for (Index d : *list)
          if (sym::text(d) == name || d->name == name) return d;
      return {};
    });
  }

  static int64_t integer(const std::string& s) {
    int64_t v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (error != std::errc() || end != s.data() + s.size()) throw BadStep("'" + s + "' is not an integer");
    return v;
  }

  template <size_t N>
  static size_t row(const std::string_view (&names)[N], const std::string& name) {
    for (size_t i = 0; i < N; ++i)
      if (names[i] == name) return i;
    throw BadStep("'" + name + "' is not known");
  }
  Scope scope(size_t i) const { return static_cast<Scope>(row(kScopes, attribute(i))); }

  // `[a, b] -> [map] in [extents] threads n`, as schedule_cache.cc writes it.
  Layout layout(const std::string& text) const {
    Layout l;
    if (text == "row_major") return l;
    size_t at = 0;
    const auto lists = [&](const char* before) {
      const size_t open = text.find('[', at);
      if (open == std::string::npos || text.find(before, at) > open) throw BadStep("'" + text + "' is not a layout");
      const size_t close = text.find(']', open);
      if (close == std::string::npos) throw BadStep("'" + text + "' is not a layout");
      at = close + 1;
      return split_list(text.substr(open + 1, close - open - 1));
    };
    for (const std::string& a : lists("")) l.args.push_back(state_.context.var(a));
    for (const std::string& e : lists("->")) l.map.push_back(expr(e, l.args));
    for (const std::string& e : lists("in")) l.extents.push_back(expr(e));
    const size_t threads = text.find("threads ", at);
    if (threads == std::string::npos) throw BadStep("'" + text + "' is not a layout");
    l.thread_dims = static_cast<int>(integer(text.substr(threads + 8)));
    return l;
  }

  // At commas outside of parentheses.
  static std::vector<std::string> split_list(const std::string& s) {
    std::vector<std::string> out;
    int depth = 0;
    std::string now;
    for (char c : s) {
      depth += (c == '(') - (c == ')');
      if (c == ',' && depth == 0) {
        out.push_back(now);
        now.clear();
      } else if (c != ' ' || !now.empty()) {
        now += c;
      }
    }
    if (!now.empty()) out.push_back(now);
    return out;
  }

  Schedule& s_;
  ScheduleState& state_;
  const TraceStep* step_ = nullptr;
  std::unordered_map<std::string, Loop> loops_;
  std::unordered_map<std::string, Block> blocks_;
};

}  // namespace

void Schedule::replay(const Trace& t) {
  if (t.version != 1) return fail("this version of traces is not known");
  Replay(*this, *impl_).run(t);
}

}  // namespace tripod::loop
