#include "crash.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace tripod::tools {
namespace {

// A signal handler has nothing but globals. Everything here is made before it can be needed, and never changed: the
// handler may not allocate.
constexpr int kMostArguments = 256;
struct Rerun {
  char* argv[kMostArguments + 3];  // null: no bundle
  char option[4200];               // --repro=FOLDER
  char message[9000];
  size_t message_size;
};
Rerun rerun;

constexpr unsigned kMostSeconds = 600;

// Async-signal-safe: fork, exec, wait and write only.
void make_bundle() {
  if (!rerun.argv[0]) return;
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, 1), dup2(null, 2);
    signal(SIGABRT, SIG_DFL);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, nullptr);
    alarm(kMostSeconds);
    execv("/proc/self/exe", rerun.argv);
    _exit(127);
  }
  int status = 0;
  if (child > 0)
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  if (child > 0 && write(2, rerun.message, rerun.message_size) < 0) _exit(1);
}

void on_crash(int number) {
  static const char kText[] = "tripod: the compiler crashed (signal ";
  char digits[] = {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10), ')', '\n'};
  if (write(2, kText, sizeof kText - 1) < 0 || write(2, digits, sizeof digits) < 0) _exit(1);
  make_bundle();
  _exit(1);
}

bool takes_repro(std::string_view command) {
  return command == "compile" || command == "explain" || command == "verify" || command == "opt";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;  // has handlers of its own, that say more
#else
constexpr bool kSanitizer = false;
#endif

}  // namespace

std::vector<std::string> command_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> all;
  for (std::string s; std::getline(in, s, '\0');) all.push_back(s);
  if (!all.empty()) all.erase(all.begin());
  return all;
}

void install_crash_handler(int argc, char** argv) {
  if (argc < 2 || argc > kMostArguments || !takes_repro(argv[1])) return;
  for (int i = 2; i < argc; ++i)
    if (std::string_view(argv[i]).substr(0, 7) == "--repro") return;
  std::error_code error;
  const std::string folder =
      (std::filesystem::temp_directory_path(error) / ("tripod-repro-" + std::to_string(getpid()))).string();
  if (error || folder.size() > 4000) return;
  std::snprintf(rerun.option, sizeof rerun.option, "--repro=%s", folder.c_str());
  rerun.message_size = static_cast<size_t>(std::snprintf(
      rerun.message, sizeof rerun.message,
      "tripod: this is a fault of the compiler, not of the model. A bundle that reproduces it is in\n  %s\n"
      "  replay: TRIPOD=tripod sh %s/replay.sh\n",
      folder.c_str(), folder.c_str()));
  for (int i = 0; i < argc; ++i) rerun.argv[i] = argv[i];
  rerun.argv[argc] = rerun.option;
  if (kSanitizer) return;
  static char stack[1 << 16];  // a stack overflow needs another one
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  for (int s : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction action {};
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK | SA_RESETHAND;
    sigaction(s, &action, nullptr);
  }
}

void leave_bundle() { make_bundle(); }

}  // namespace tripod::tools
