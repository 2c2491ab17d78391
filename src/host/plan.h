// Makes the host program: walks the fusion groups in order, gives every value a place in memory, and writes the steps.
//
// Places: graph inputs and outputs are the caller's memory; constants lie in the weights; an alias (reshape) has the
// place of its operand; everything else gets an arena buffer that is alive from the step that writes it to the last
// step that reads it. A value that is an output, or that an output is a view of, is computed directly into the caller's
// memory; where that cannot be (it is an input, a constant, or returned twice) a copy at the end of the program makes it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/numbering.h"
#include "graph/group.h"
#include "host/program.h"
#include "host/weights.h"

namespace tripod::host {

// The code of one kernel group, as a back end gives it.
struct GroupKernel {
  std::vector<graph::ValueId> params;      // inputs, then outputs
  std::vector<loop::Buffer> buffers;       // of params (a constant's says how it is to be packed), then workspace
  std::vector<Index> dims;
  struct Phase {
    struct Code {
      uint32_t features = 0;               // tp_cpu_feature bits that it needs
      std::string symbol;
      Index extent, scratch;
      int64_t grain = 1;
      std::vector<Index> geometry;         // on a GPU, instead of the three above: as in LaunchCode
      Index narrow;
      std::string wide;
    };
    Code code;
    std::vector<Code> variants;            // the best first; `code` where the CPU has the features of none
  };
  std::vector<Phase> phases;
  Work work;
};

struct PlanInputs {
  std::function<graph::Groups(const graph::Graph&)> fuse;
  std::function<GroupKernel(const graph::Graph&, const graph::Group&)> compile;
  Numbering* sites;
  // Outputs whose memory may be an input's: written when everything has been read.
  std::set<std::string> aliased_outputs;
};

class Planner {
 public:
  Planner(const graph::Module& m, const PlanInputs& in, Weights& weights) : m_(m), in_(in), weights_(weights) {}
  Program run();

 private:
  using Key = std::pair<const graph::Graph*, graph::ValueId>;

  // walking (plan.cc)
  void plan_graph(const graph::Graph& g, const graph::Groups& groups, Steps& steps);
  void plan_group(const graph::Graph& g, const graph::Group& group, Steps& steps);
  void plan_source(const graph::Graph& g, const graph::Node& n, Steps& steps);
  void plan_kernel(const graph::Graph& g, const graph::Group& group, Steps& steps);
  void plan_read_dim(const graph::Graph& g, const graph::Node& n, Steps& steps);
  void finish_outputs(Steps& steps);
  void write_output(size_t i, const View& from, Steps& steps);
  void require_known(Steps& steps);
  std::string requirement_text(const graph::Module::Requirement& r, std::vector<Index>& numbers) const;
  bool is_known(Index e) const;  // are all of its symbols, by now?

  // runtime operators (plan_runtime.cc)
  void plan_runtime(const graph::Graph& g, const graph::Node& n, Steps& steps);
  void plan_counted(const graph::Graph& g, const graph::Node& n, Steps& steps);

  // control flow (plan_control.cc)
  void plan_if(const graph::Graph& g, const graph::Node& n, Steps& steps);
  void plan_loop(const graph::Graph& g, const graph::Node& n, Steps& steps);
  void plan_scan(const graph::Graph& g, const graph::Node& n, Steps& steps);
  Place start_carried(const graph::Graph& g, graph::ValueId v, Steps& steps);
  Place make_inner_result(const graph::Graph& g, graph::ValueId v);
  Steps plan_body(const graph::Graph& sub, const std::vector<Place>& inputs, bool own_segment = false);
  void carry(const Place& to, const View& from, const std::vector<Place>& carried, Steps& steps);
  void copy(const View& to, const View& from, Steps& steps);
  void store_slice(const Place& to, const View& from, Index number, Steps& steps);
  void finish_iteration(Steps& body);
  void extend_over_loop(int32_t begin);
  int new_counter(const std::string& name = "iteration");
  // A dim of a carried value that the iterations change: `symbol` is its extent now, `next` (a program symbol of its
  // own) the one in the making. Values that have such dims live in a segment that every iteration enters anew.
  struct Changing {
    size_t value;
    int dim;
    int symbol, next;
  };
  struct Growing {
    std::vector<Changing> dims;
    std::vector<bool> value;   // by carried value: has it such dims?
    int32_t memory = -1, staging = -1;  // segments
  };
  Growing start_growing(const graph::Graph& g, const graph::Node& n, const graph::Graph& sub, size_t first, size_t carried, Steps& steps);
  void carry_growing(const Growing& grow, const graph::Graph& sub, size_t first, const std::vector<Place>& memory, Steps& body);
  void finish_growing(const Growing& grow, const graph::Graph& g, const graph::Node& n, Steps& steps);
  void set_symbol(int symbol, Index value, int32_t site, Steps& steps);
  void refuse_changing(const graph::Graph& g, const graph::Node& n, size_t first_result = 0);
  Index slice_bytes(const graph::Type& t) const;

  // parts
  Step& add(Steps& steps, Step::Kind kind);
  LaunchCode launch_code(const GroupKernel::Phase::Code& c);
  Place place(const graph::Graph& g, graph::ValueId v) const;
  View view(const graph::Graph& g, graph::ValueId v);      // and marks it as read by the current step
  View absent() const { return {}; }
  // Memory for a result that the next step writes: the output's where it is one, an arena buffer otherwise.
  Place make_result(const graph::Graph& g, graph::ValueId v, Steps& steps);
  void find_viewed_outputs(const graph::Graph& g, const graph::Groups& groups);
  std::optional<size_t> output_for(const graph::Graph& g, graph::ValueId v) const;
  Place arena(const std::string& name, Index bytes);
  Place arena_for(const graph::Graph& g, graph::ValueId v);
  std::vector<Index> undefined_symbols(const graph::Graph& g, const graph::Node& n) const;
  void touch(const Place& p);
  // Behind what its sizes rely on: a size that cannot be is an error of its node, not of memory.
  void enter_segment(Steps& steps);
  int symbol(Index var) const;
  int32_t site(const graph::Node& n);
  int32_t add_work(Work work);
  Work operator_work(const graph::Node& n, const std::string& name, const std::vector<View>& views) const;
  // Says that buffer `buffer` of step s holds v; values of sub-graphs, which have no one value, are left out.
  void note_result(Step& s, int32_t buffer, const graph::Graph& g, graph::ValueId v) const;

  const graph::Module& m_;
  const PlanInputs& in_;
  Weights& weights_;
  Program p_;
  Numbering kernels_;
  std::map<Key, Place> places_;
  std::map<graph::ValueId, size_t> viewed_outputs_;  // of the main graph: a value, and the output that is a view of it
  sym::Context* context_ = nullptr;
  std::vector<std::pair<View, View>> late_copies_;   // to, from: at the end of the iteration being planned
  std::vector<bool> known_;            // requirements that have been written
  int32_t next_ = 0;                   // id of the next step
  int32_t segment_ = 0;                // where new buffers go
  int32_t num_segments_ = 0;           // number of the newest segment
};

}  // namespace tripod::host
