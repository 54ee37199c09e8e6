#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::c_test {

/// A parameter of a function, or a member of a struct, as tessera/c.h declares it.
struct DeclaredValue {
  std::string type;       ///< "const char*", "tessera_unit", ...
  std::string name;       ///< without an array's size
  std::size_t count = 1;  ///< elements of an array member
  std::string comment;    ///< of a member
};

/// A function that tessera/c.h declares.
struct DeclaredFunction {
  std::string result;  ///< "tessera_status" or "const char*"
  std::string name;
  std::vector<DeclaredValue> parameters;
  std::string comment;

  /// Whether the comment says that `parameter` may be NULL.
  [[nodiscard]] bool may_be_null(const std::string& parameter) const;
};

/// A struct with members that tessera/c.h declares.
struct DeclaredStruct {
  std::string name;
  std::vector<DeclaredValue> members;
};

/// The declarations of tessera/c.h. Throws std::runtime_error for what it cannot read, so that a
/// new form of declaration is not passed over.
struct CHeader {
  std::vector<DeclaredFunction> functions;
  std::vector<DeclaredStruct> structs;

  static CHeader read(const std::string& path);
};

}  // namespace tessera::c_test
