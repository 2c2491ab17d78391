#include "host/spaces.h"

#include <algorithm>

namespace tripod::host {
namespace {

int32_t last_id(const Step& s) {
  int32_t last = s.id;
  for (const Steps& b : s.body)
    for (const Step& t : b) last = std::max(last, last_id(t));
  return last;
}

class Spaces {
 public:
  Spaces(Program& p, sym::Context& c) : p_(p), c_(c) {}

  void run() {
    p_.first_host_segment = p_.num_segments;
    p_.num_segments *= 2;
    visit(p_.steps);
    // The first segment is entered before anything is planned into it: its mirrors are known only now.
    enter_mirrors(p_.steps);
  }

 private:
  void visit(Steps& steps) {
    Steps out;
    for (Step& s : steps) {
      std::vector<Step> before, after;
      switch (s.kind) {
        case Step::call: call(s, before, after); break;
        case Step::store: s.views[0] = written(s, s.views[0], after); break;
        case Step::read_dim: s.views[0] = read(s, s.views[0], before); break;
        case Step::branch:
          s.views[0] = read(s, s.views[0], before);
          for (Steps& b : s.body) visit(b);
          break;
        case Step::loop: loop(s, before); break;
        default: break;
      }
      out.insert(out.end(), before.begin(), before.end());
      out.push_back(std::move(s));
      out.insert(out.end(), after.begin(), after.end());
    }
    steps = std::move(out);
  }

  void call(Step& s, Steps& before, Steps& after) {
    for (size_t i = 0; i < s.views.size(); ++i) {
      const bool only_read = static_cast<int32_t>(i) < s.reads;
      const View device = s.views[i];
      s.views[i] = only_read ? read(s, device, before) : mirror(s, device, s.id);
      if (only_read || device.place.kind == Place::none) continue;
      // Scratch is written by one call and read by the next: both ways.
      if (device.place.kind == Place::arena) before.push_back(copy(s, s.views[i], device));
      after.push_back(copy(s, device, s.views[i]));
    }
  }

  // The condition and the trip count are read before every iteration, the counter is written at the start of each.
  void loop(Step& s, Steps& before) {
    const int32_t last = last_id(s);
    Steps head, tail;
    for (size_t i = 0; i < 2 && i < s.views.size(); ++i) {
      const View device = s.views[i];
      if (on_host(device.place)) continue;
      s.views[i] = mirror(s, device, last);
      before.push_back(copy(s, s.views[i], device));
      tail.push_back(copy(s, s.views[i], device));
    }
    if (s.views.size() > 2 && !on_host(s.views[2].place)) {
      const View device = s.views[2];
      s.views[2] = mirror(s, device, last);
      head.push_back(copy(s, device, s.views[2]));
    }
    visit(s.body[0]);
    s.body[0].insert(s.body[0].begin(), head.begin(), head.end());
    s.body[0].insert(s.body[0].end(), tail.begin(), tail.end());
  }

  // Weights have a copy on the host: nothing to do for those.
  bool on_host(const Place& p) const { return p.kind == Place::none || p.kind == Place::zero_size || p.kind == Place::weight; }

  View read(const Step& s, const View& device, Steps& before) {
    if (on_host(device.place)) return device;
    const View host = mirror(s, device, s.id);
    before.push_back(copy(s, host, device));
    return host;
  }
  View written(const Step& s, const View& device, Steps& after) {
    const View host = mirror(s, device, s.id);
    after.push_back(copy(s, device, host));
    return host;
  }

  View mirror(const Step& s, const View& device, int32_t last) {
    if (device.place.kind == Place::none) return device;
    const Index bytes = sym::ceildiv(sym::product(c_, device.shape) * info(device.dtype).bits, 8);
    p_.buffers.push_back({"host" + std::to_string(p_.buffers.size()), bytes, p_.first_host_segment + s.in_segment, s.id, last});
    return {{Place::arena, static_cast<int32_t>(p_.buffers.size()) - 1, 0}, device.dtype, device.shape};
  }
  static Step copy(const Step& at, const View& to, const View& from) {
    Step s;
    s.kind = Step::copy;
    s.id = at.id;
    s.site = at.site;
    s.views = {to, from};
    return s;
  }

  void enter_mirrors(Steps& steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      for (Steps& b : steps[i].body) enter_mirrors(b);
      if (steps[i].kind != Step::segment) continue;
      const int32_t host = p_.first_host_segment + steps[i].number;
      if (std::none_of(p_.buffers.begin(), p_.buffers.end(), [&](const ArenaBuffer& b) { return b.segment == host; })) continue;
      Step enter = steps[i];
      enter.number = host;
      steps.insert(steps.begin() + static_cast<long>(++i), enter);
    }
  }

  Program& p_;
  sym::Context& c_;
};

}  // namespace

void place_on_device(Program& p, sym::Context& c) { Spaces(p, c).run(); }

}  // namespace tripod::host
