#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/exit_status.hpp"

namespace tessera::tools {
namespace {

constexpr std::size_t kLongestLine = 1'000;

bool is_float(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// A buffer for the blocks of a tensor.
std::vector<std::byte> block_of(const ManifestTensor& tensor) {
  return std::vector<std::byte>(std::min(CheckpointReader::kBlockBytes, tensor.bytes));
}

// Collects the differences between two checkpoints, as lines.
class Differences {
 public:
  Differences(const std::string& a, const std::string& b) : a_{a}, b_{b} {}

  void compare() {
    compare_texts("training state", a_.manifest().state, b_.manifest().state);
    compare_texts("value", a_.manifest().values, b_.manifest().values);
    std::uint64_t bytes = 0;
    for (const ManifestTensor& tensor : a_.manifest().tensors) { bytes += tensor.bytes; }
    ByteProgress progress{stdout, "diff ", bytes};
    for (const ManifestTensor& tensor : a_.manifest().tensors) {
      const ManifestTensor* const other = b_.find(tensor.name, tensor.role);
      if (other == nullptr) {
        add("{} '{}' is in {} only", tensor.role, tensor.name, a_.folder().string());
      } else {
        compare_tensors(tensor, *other);
      }
      progress.add(tensor.bytes);
    }
    for (const ManifestTensor& tensor : b_.manifest().tensors) {
      if (a_.find(tensor.name, tensor.role) != nullptr) { continue; }
      add("{} '{}' is in {} only", tensor.role, tensor.name, b_.folder().string());
    }
  }

  void print() const {
    if (lines_.empty()) {
      fmt::print("{} and {} hold the same ({} tensors)\n", a_.folder().string(),
                 b_.folder().string(), a_.manifest().tensors.size());
      return;
    }
    for (const std::string& line : lines_) { fmt::print("{}\n", line); }
    fmt::print("{} difference{} between {} and {}\n", lines_.size(), lines_.size() == 1 ? "" : "s",
               a_.folder().string(), b_.folder().string());
  }
  [[nodiscard]] bool any() const noexcept { return !lines_.empty(); }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    lines_.push_back(shown(fmt::format(format, std::forward<Values>(values)...), kLongestLine));
  }

  void compare_texts(const char* what, const std::map<std::string, std::string>& a,
                     const std::map<std::string, std::string>& b) {
    std::set<std::string> names;
    for (const auto& [name, value] : a) { names.insert(name); }
    for (const auto& [name, value] : b) { names.insert(name); }
    for (const std::string& name : names) {
      const auto in_a = a.find(name);
      const auto in_b = b.find(name);
      const bool both = in_a != a.end() && in_b != b.end();
      if (both && in_a->second == in_b->second) { continue; }
      add("{} '{}' is {} and {}", what, name, in_a == a.end() ? "missing" : in_a->second,
          in_b == b.end() ? "missing" : in_b->second);
    }
  }

  void compare_tensors(const ManifestTensor& a, const ManifestTensor& b) {
    if (a.shape != b.shape) {
      return add("{} '{}' has shape {} and {}", a.role, a.name, a.shape.to_string(),
                 b.shape.to_string());
    }
    const bool floats = is_float(a.dtype) && is_float(b.dtype);
    const std::string dtypes =
        a.dtype == b.dtype ? "" : fmt::format("is {} and {}", a.dtype, b.dtype);
    if (!dtypes.empty() && !floats) { return add("{} '{}' {}", a.role, a.name, dtypes); }
    const Found found = floats ? compare_values(a, b) : compare_bytes(a, b);
    if (found.differ == 0 && dtypes.empty()) { return; }
    std::string line = dtypes;
    if (found.differ > 0) {
      line += fmt::format("{}differs in {} of {} elements", dtypes.empty() ? "" : ", ",
                          found.differ, a.shape.elems());
      if (floats) { line += fmt::format(", at most by {:.4g}", found.largest); }
    }
    add("{} '{}' {}", a.role, a.name, line);
  }

  struct Found {
    std::int64_t differ = 0;
    double largest = 0;
  };

  // Compares the bytes of both, reading and checking both: damage must not count as equality.
  Found compare_bytes(const ManifestTensor& a, const ManifestTensor& b) {
    Found found;
    std::vector<std::byte> block_a = block_of(a);
    std::vector<std::byte> block_b = block_of(b);
    const auto elems = static_cast<std::uint64_t>(std::max<std::int64_t>(a.shape.elems(), 1));
    const std::uint64_t width = std::max<std::uint64_t>(a.bytes / elems, 1);
    for (std::size_t block = 0; block < a.sums.size(); ++block) {
      const auto from_a = a_.read_block(a, block, block_a);
      const auto from_b = b_.read_block(b, block, block_b);
      if (std::memcmp(from_a.data(), from_b.data(), from_a.size()) == 0) { continue; }
      for (std::size_t at = 0; at < from_a.size(); at += width) {
        found.differ += std::memcmp(from_a.data() + at, from_b.data() + at, width) == 0 ? 0 : 1;
      }
    }
    return found;
  }

  Found compare_values(const ManifestTensor& a, const ManifestTensor& b) {
    if (a.dtype == b.dtype) {
      Found found = compare_bytes(a, b);
      if (found.differ == 0) { return found; }
    }
    Found found;
    constexpr std::int64_t kElems = std::int64_t{1} << 20;
    for (std::int64_t first = 0; first < a.shape.elems(); first += kElems) {
      const auto count = static_cast<std::size_t>(std::min(kElems, a.shape.elems() - first));
      std::vector<float> from_a(count);
      std::vector<float> from_b(count);
      a_.read(a, first, from_a);
      b_.read(b, first, from_b);
      for (std::size_t i = 0; i < count; ++i) {
        const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
        if (bits(from_a[i]) == bits(from_b[i])) { continue; }
        ++found.differ;
        const double by = std::abs(static_cast<double>(from_a[i]) - from_b[i]);
        if (!(by <= found.largest)) { found.largest = by; }  // NaN stays
      }
    }
    return found;
  }

  CheckpointReader a_;
  CheckpointReader b_;
  std::vector<std::string> lines_;
};

}  // namespace

void diff_checkpoints(const CheckpointSettings& settings) {
  Differences differences{checkpoint_at(settings.paths[0]).string(),
                          checkpoint_at(settings.paths[1]).string()};
  differences.compare();
  differences.print();
  if (differences.any()) { throw Ended{static_cast<int>(ExitStatus::other)}; }
}

}  // namespace tessera::tools
