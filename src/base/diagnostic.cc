#include "base/diagnostic.h"

#include "base/printable.h"

namespace tripod {

static constexpr size_t kMaxMessage = 2000;

std::string printable(std::string_view text, size_t most) {
  std::string s;
  for (char c : text.substr(0, most)) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u != 0x7f) {
      s += c;
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      s += {'\\', 'x', kHex[u >> 4], kHex[u & 15]};
    }
  }
  return text.size() > most ? s + "..." : s;
}

std::string Site::text() const {
  if (index < 0) return printable(name);
  std::string s = "node " + std::to_string(index) + " " + printable(op);
  if (!name.empty()) s += " '" + printable(name) + "'";
  return s;
}

Diagnostic& Diagnostics::error(const Site& site, std::string message, std::string hint) {
  errors_.push_back({site, std::move(message), {}, std::move(hint)});
  return errors_.back();
}

std::string Diagnostics::text(std::string_view file) const {
  std::string s;
  for (const Diagnostic& d : errors_) {
    const std::string where = d.site.text();
    s += std::string(file) + ": error: " + (where.empty() ? "" : where + ": ") + printable(d.message, kMaxMessage) + "\n";
    for (const std::string& n : d.notes) s += "  note: " + printable(n, kMaxMessage) + "\n";
    if (!d.hint.empty()) s += "  hint: " + printable(d.hint, kMaxMessage) + "\n";
  }
  if (!errors_.empty())
    s += std::to_string(errors_.size()) + (errors_.size() == 1 ? " error\n" : " errors\n");
  return s;
}

void Diagnostics::stop_if_errors() const {
  if (!ok()) throw CompileError(*this);
}

CompileError::CompileError(Diagnostics d) : std::runtime_error(d.text("")), diagnostics(std::move(d)) {}

CompileError::CompileError(const Site& site, std::string message, std::string hint)
    : CompileError([&] {
        Diagnostics d;
        d.error(site, std::move(message), std::move(hint));
        return d;
      }()) {}

void internal_error(std::string_view file, int line, std::string message) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + message);
}

}  // namespace tripod
