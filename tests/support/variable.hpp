#pragma once

#include <cstdlib>
#include <string>

namespace tessera::test {

/// Sets an environment variable during its lifetime.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_{name} {
    const char* const before = std::getenv(name);
    if (before != nullptr) { before_ = before; }
    had_ = before != nullptr;
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

}  // namespace tessera::test
