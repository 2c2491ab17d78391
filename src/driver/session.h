// One compile: its options, its timings, what is printed and where it stops. Session::run is the only place that
// times, dumps and verifies a phase.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/bundle.h"
#include "driver/options.h"
#include "graph/graph.h"

namespace tripod {

// Thrown by Session::run when --stop-after names the phase that has just ended.
struct Stopped {
  std::string phase;
};

class Session {
 public:
  explicit Session(const Options& options) : options_(options) {
    if (!options.repro.empty()) dumper_ = std::make_unique<PhaseDumper>(options.repro);
  }
  const Options& options() const { return options_; }

  // Runs one phase. The result is handed on; `show` (may be empty) prints it for --print-after.
  template <class F>
  auto run(const std::string& phase, F&& f) {
    const auto start = std::chrono::steady_clock::now();
    show_progress(phase);
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      ended(phase, start);
    } else {
      auto result = f();
      ended(phase, start);
      return result;
    }
  }

  // Prints text after a pass or phase when the options ask for it.
  void print(const std::string& pass, const std::function<std::string()>& text) const;
  bool wants(const std::string& pass) const { return options_.print_after == pass || options_.print_after == "all"; }
  // Fails when --print-after names something that has not been printed.
  void check_printed() const;
  std::string timings() const;
  const std::vector<std::pair<std::string, double>>& times() const { return times_; }
  // The module after a phase of the graph, for --print-after and --repro.
  void show(const std::string& phase, const graph::Module& m) const;
  void stop_here(const std::string& phase) const {
    if (options_.stop_after == phase) throw Stopped{phase};
  }

  ~Session() { show_progress(""); }
  Session(const Session&) = delete;

 private:
  void show_progress(const std::string& phase) const;
  void ended(const std::string& phase, std::chrono::steady_clock::time_point start) {
    times_.push_back({phase, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
  }
  const Options& options_;
  mutable bool printed_ = false;          // something for --print-after
  std::unique_ptr<PhaseDumper> dumper_;   // null: no bundle is asked for
  std::vector<std::pair<std::string, double>> times_;
};

}  // namespace tripod
