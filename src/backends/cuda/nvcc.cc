#include "backends/cuda/nvcc.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "backends/cuda/cuda_c.h"
#include "base/diagnostic.h"
#include "base/sha256.h"

extern char** environ;

namespace tripod::cuda {
namespace {

namespace fs = std::filesystem;

// Text a file should have at least: below, starting the compiler costs more than the kernels in it.
constexpr size_t kLeastPart = 24 * 1024;
constexpr size_t kMostParts = 32;
constexpr size_t kBytesPerJob = size_t{1} << 30;  // of memory

std::string hash_of(const std::string& s) { return sha256(s.data(), s.size()); }

std::string read_file(const fs::path& p) {
  std::ifstream in(p, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

void write_file(const fs::path& p, const std::string& bytes) {
  std::ofstream out(p, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) throw CompileError({}, "cannot write " + p.string(), "is the disk full?");
}

// A folder that vanishes with all that is in it.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "tripod-nvcc-XXXXXX").string();
    if (!mkdtemp(name.data())) throw CompileError({}, "cannot make a folder below " + fs::temp_directory_path().string(), "set TMPDIR to a folder that can be written");
    path = name;
  }
  Folder(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Runs a program in `folder`, its output going to `log`; its exit code, or -1 when it could not be started or was killed.
int run(const std::vector<std::string>& args, const fs::path& folder, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string find_nvcc(const std::string& wanted) {
  const std::string hint = "install the CUDA toolkit (13.0) or give --nvcc=PATH";
  const auto usable = [](const fs::path& p) { return access(p.c_str(), X_OK) == 0 && !fs::is_directory(p); };
  if (!wanted.empty()) {
    if (!usable(wanted)) throw CompileError({}, "no CUDA compiler at " + wanted, hint);
    return fs::absolute(wanted).string();
  }
  const char* path = std::getenv("PATH");
  std::stringstream folders(path ? path : "");
  for (std::string f; std::getline(folders, f, ':');)
    if (!f.empty() && usable(fs::path(f) / "nvcc")) return fs::absolute(fs::path(f) / "nvcc").string();
  if (usable("/usr/local/cuda/bin/nvcc")) return "/usr/local/cuda/bin/nvcc";
  throw CompileError({}, "kernels for CUDA need the compiler nvcc, which is neither on PATH nor in /usr/local/cuda/bin", hint);
}

std::string version_of(const std::string& nvcc) {
  const Folder folder;
  if (run({nvcc, "--version"}, folder.path, "log") != 0)
    throw CompileError({}, nvcc + " --version failed: " + read_file(folder.path / "log"), "install the CUDA toolkit (13.0) or give --nvcc=PATH");
  return read_file(folder.path / "log");
}

std::vector<std::string> flags(const Arch& a, const NvccOptions& o) {
  std::vector<std::string> f = a.ptx ? std::vector<std::string>{"-ptx", "-arch=compute_" + std::to_string(a.number)}
                                     : std::vector<std::string>{"-cubin", "-arch=sm_" + std::to_string(a.number) + (a.number >= 90 ? "a" : "")};
  f.insert(f.end(), {"-std=c++17", "-fmad=false", "-Werror", "all-warnings"});
  if (o.line_info) f.push_back("-lineinfo");
  return f;
}

// The kernel that a message of the compiler is about: by line (`kernels.cu(12): error`), or by its name (ptxas).
struct Culprit {
  std::string kernel, nodes;
};
Culprit culprit(const std::string& text, const std::string& message) {
  size_t line = 0;
  if (const size_t at = message.find("kernels.cu("); at != std::string::npos) line = std::strtoul(message.c_str() + at + 11, nullptr, 10);
  // Walks over the kernels: the comment in front of one names its nodes.
  Culprit current, found;
  std::string nodes;
  std::stringstream lines(text);
  size_t number = 0;
  for (std::string l; std::getline(lines, l);) {
    ++number;
    if (l.starts_with("// ") && !l.starts_with("// rule: ")) nodes += (nodes.empty() ? "" : ", ") + l.substr(3);
    if (const size_t at = l.find("(tp_error* error"); at != std::string::npos && l[0] != ' ') {
      current = {l.substr(0, at), nodes};
      if (message.find("'" + current.kernel + "'") != std::string::npos) found = current;
    }
    if (l == "}") nodes.clear();
    if (number == line && !current.kernel.empty()) return current;
  }
  return found;
}

std::string first_lines(const std::string& s, int count) {
  size_t end = 0;
  for (int i = 0; i < count && end < s.size(); ++i) end = std::min(s.find('\n', end), s.size() - 1) + 1;
  return s.substr(0, end);
}

struct Job {
  std::string text, key;
  Image* image;
};

std::string compile_one(const std::string& nvcc, const Job& job, const NvccOptions& o) {
  const Folder folder;
  write_file(folder.path / "kernels.cu", job.text);
  std::vector<std::string> args{nvcc};
  for (const std::string& f : flags(job.image->arch, o)) args.push_back(f);
  args.insert(args.end(), {"kernels.cu", "-o", "out"});
  const int code = run(args, folder.path, "log");
  const std::string bytes = code == 0 ? read_file(folder.path / "out") : "";
  if (!bytes.empty()) return bytes;
  const std::string log = read_file(folder.path / "log");
  const Culprit c = culprit(job.text, log);
  throw CompileError({}, "nvcc failed" + (c.kernel.empty() ? std::string() : " on kernel " + c.kernel) +
                             (c.nodes.empty() ? "" : " (" + c.nodes + ")") + " with exit code " + std::to_string(code) + ":\n" +
                             first_lines(log, 6),
                     code < 0 ? "it was killed or could not be started: is there enough memory? (--jobs=1)" : "");
}

// Found in the cache, or compiled and put there: under a name of its own first, then renamed, so that other processes
// never see half a file.
std::string cached(const std::string& nvcc, const Job& job, const NvccOptions& o) {
  if (o.cache_folder.empty()) return compile_one(nvcc, job, o);
  const fs::path at = fs::path(o.cache_folder) / (job.key + (job.image->arch.ptx ? ".ptx" : ".cubin"));
  std::error_code ignored;
  if (fs::exists(at, ignored))
    if (std::string bytes = read_file(at); !bytes.empty()) return bytes;
  std::string bytes = compile_one(nvcc, job, o);
  fs::create_directories(o.cache_folder, ignored);
  const fs::path fresh = at.string() + "." + std::to_string(getpid()) + "." + std::to_string(reinterpret_cast<uintptr_t>(&job));
  try {
    write_file(fresh, bytes);
    fs::rename(fresh, at);
  } catch (const std::exception&) {  // a cache that cannot be written is no reason to fail
    fs::remove(fresh, ignored);
  }
  return bytes;
}

size_t default_jobs() {
  size_t jobs = std::max(1u, std::thread::hardware_concurrency());
  std::ifstream in("/proc/meminfo");
  for (std::string word; in >> word;)
    if (word == "MemAvailable:") {
      size_t kib = 0;
      in >> kib;
      jobs = std::min(jobs, std::max<size_t>(1, kib * 1024 / kBytesPerJob));
      break;
    }
  return jobs;
}

// Which texts stand in which file. By the hash of a text, so that a kernel that changes leaves the other files alone.
std::vector<std::string> parts_of(const std::vector<std::string>& sources) {
  std::set<std::string> seen;
  std::vector<const std::string*> distinct;
  size_t total = 0;
  for (const std::string& s : sources)
    if (seen.insert(s).second) distinct.push_back(&s), total += s.size();
  const size_t count = std::clamp<size_t>(total / kLeastPart, 1, kMostParts);
  std::vector<std::string> parts(count);
  for (const std::string* s : distinct) {
    const std::string hash = hash_of(*s);
    parts[std::stoul(hash.substr(0, 7), nullptr, 16) % count] += *s + "\n";
  }
  std::erase_if(parts, [](const std::string& p) { return p.empty(); });
  const std::string head = prelude();
  for (std::string& p : parts) p = head + p;
  return parts;
}

}  // namespace

std::vector<Image> compile(const std::vector<std::string>& sources, const NvccOptions& o) {
  if (sources.empty()) return {};
  const std::string nvcc = find_nvcc(o.nvcc), version = version_of(nvcc);
  const std::vector<std::string> parts = parts_of(sources);
  std::vector<Image> images;
  for (const Arch& a : o.archs)
    for (size_t p = 0; p < parts.size(); ++p) images.push_back({a, static_cast<int>(p), {}});
  std::vector<Job> jobs;
  for (Image& i : images) {
    std::string key = version;
    for (const std::string& f : flags(i.arch, o)) key += " " + f;
    const std::string& text = parts[static_cast<size_t>(i.part)];
    jobs.push_back({text, hash_of(key + "\n" + text), &i});
  }
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t first_failed = jobs.size();  // the same error is reported whatever the order in which they end
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t k; (k = next++) < jobs.size();) {
      try {
        jobs[k].image->bytes = cached(nvcc, jobs[k], o);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (k < first_failed) first_failed = k, error = std::current_exception();
        return;
      }
    }
  };
  std::vector<std::thread> threads;
  const size_t width = std::min(o.jobs > 0 ? static_cast<size_t>(o.jobs) : default_jobs(), jobs.size());
  for (size_t t = 1; t < width; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
  return images;
}

}  // namespace tripod::cuda
