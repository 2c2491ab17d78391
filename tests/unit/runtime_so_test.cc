// The real artifact: the fake model and runtime.o linked into a model.so the way packaging does it, then loaded with
// tvm_ffi from Python, opened and closed by a C API caller, and its undefined symbols held to libc.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tripod/model.h"

namespace {

const std::string kSource = TRIPOD_SOURCE_DIR;

// Output of a command, both streams; fails the test when the command does.
std::string shell(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

// model.so in a folder of its own; the exports are the same as packaging gives.
const std::string& model_so() {
  static const std::string path = [] {
    std::string dir = testing::TempDir() + "tripod_runtime_so";
    std::filesystem::create_directories(dir);
    shell("g++ -std=c++20 -O2 -fPIC -fno-exceptions -fno-rtti -I" + kSource + "/src -I" + kSource + "/include -c " +
          kSource + "/tests/unit/runtime_fake_model.cc -o " + dir + "/fake.o");
    shell("ld.lld-19 -shared --gc-sections -Bsymbolic -z now -o " + dir + "/model.so " + dir + "/fake.o " +
          TRIPOD_RUNTIME_O);
    return dir + "/model.so";
  }();
  return path;
}

std::vector<std::string> symbols(const std::string& which) {
  std::istringstream lines(shell("nm -D -P " + which + " " + model_so()));  // "name type value size"
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) names.push_back(line.substr(0, line.find(' ')));
  EXPECT_FALSE(names.empty());
  return names;
}

TEST(So, NeedsLibcOnly) {
  const std::set<std::string> allowed = {
      "__errno_location", "__tls_get_addr", "calloc",      "clock_gettime", "close",       "dladdr",       "dlclose",
      "dlerror",          "dlopen",         "dlsym",          "free",        "fstat",       "getpid",       "madvise",
      "memcmp",           "memcpy",         "memmove",     "memset",      "mmap",         "munmap",
      "open",             "posix_memalign", "pread",       "pthread_create", "pthread_join", "pthread_sigmask",
      "read",             "realloc",        "sched_yield", "sigfillset",  "snprintf",     "strerror",
      "strlen",           "strrchr",        "strtol",      "strtoll",     "syscall",      "vsnprintf"};
  for (const std::string& s : symbols("--undefined-only")) EXPECT_TRUE(allowed.count(s)) << s;
}

TEST(So, ExportsEntryPointsOnly) {
  for (const std::string& s : symbols("--defined-only"))
    EXPECT_TRUE(s == "tripod_get_api" || s.rfind("__tvm_ffi_", 0) == 0) << s;
}

// What runs before the CPU check may not contain code that an old CPU does not have.
TEST(So, EntryCodeIsBaseline) {
  std::string dir = std::filesystem::path(TRIPOD_RUNTIME_O).parent_path();
  for (const char* name : {"cpu", "entry", "errors", "tvm_ffi_entry"}) {
    std::string code = shell("objdump -d --no-show-raw-insn " + dir + "/" + name + ".o");
    EXPECT_NE(code.find("ret"), std::string::npos) << name;
    EXPECT_EQ(code.find("%ymm"), std::string::npos) << name;
    EXPECT_EQ(code.find("\tv"), std::string::npos) << name;  // every AVX mnemonic begins with v
  }
}

TEST(So, OpensRunsAndUnloads) {
  for (int i = 0; i < 5; ++i) {
    void* handle = dlopen(model_so().c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(handle) << dlerror();
    auto get = reinterpret_cast<tripod_get_api_function>(dlsym(handle, "tripod_get_api"));
    const tripod_api* api = get(TRIPOD_API_VERSION);
    ASSERT_TRUE(api);
    api->set_num_threads(3);
    tripod_context* context = nullptr;
    ASSERT_EQ(api->create_context(nullptr, &context), TRIPOD_OK);
    float x[64 * 4], y[64 * 2] = {}, sum[64 * 4], cols[64 * 2];
    std::fill(std::begin(x), std::end(x), -1.f);
    int64_t mode = 0, where[1], xs[] = {64, 4}, ys[] = {64, 2}, ws[] = {0};
    auto tensor = [](void* p, const int64_t* shape, int32_t rank, tripod_dtype dtype) {
      return tripod_value{TRIPOD_TENSOR, {p, shape, nullptr, rank, dtype, TRIPOD_CPU, 0}, nullptr, 0};
    };
    tripod_value in[] = {tensor(x, xs, 2, TRIPOD_F32), tensor(y, ys, 2, TRIPOD_F32), tensor(&mode, nullptr, 0, TRIPOD_I64)};
    tripod_value out[] = {tensor(sum, xs, 2, TRIPOD_F32), tensor(cols, ys, 2, TRIPOD_F32), tensor(where, ws, 1, TRIPOD_I64)};
    EXPECT_EQ(api->run(context, in, 3, out, 3), TRIPOD_OK) << api->last_error();
    EXPECT_EQ(sum[255], -6.f);
    api->destroy_context(context);
    EXPECT_EQ(dlclose(handle), 0);  // with helpers still spinning: they must be joined
    EXPECT_EQ(dlopen(model_so().c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
  }
}

TEST(So, ServesTvmFfi) {
  std::string python = kSource + "/build/venv/bin/python";
  if (!std::filesystem::exists(python)) GTEST_SKIP() << "no " << python;
  std::string text = shell("cd / && " + python + " " + kSource + "/tests/unit/runtime_so_test.py " + model_so());
  EXPECT_NE(text.find("all good"), std::string::npos) << text;
  printf("%s", text.c_str());
}

}  // namespace
