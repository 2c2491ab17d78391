// A folder for files on the way; removed whatever happens.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/diagnostic.h"

namespace tripod {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() / ("tripod-" + std::to_string(getpid()) + "-XXXXXX")) {
    std::string s = path_.string();
    if (!mkdtemp(s.data())) throw CompileError({}, "cannot make a temporary folder in " + path_.parent_path().string());
    path_ = s;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace tripod
