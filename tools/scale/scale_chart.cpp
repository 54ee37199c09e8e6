#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/scale/scale_document.hpp"

namespace tessera::tools {
namespace {

constexpr int kRows = 15;
constexpr std::size_t kColumnWidth =
    9;  // five letters, or the digits of the largest number of ranks
constexpr std::size_t kMostColumns = 10;
constexpr std::size_t kLabelWidth = 7;

char letter(Strategy strategy) {
  switch (strategy) {
    case Strategy::dp:
      return 'p';
    case Strategy::ddp:
      return 'd';
    case Strategy::zero1:
      return '1';
    case Strategy::zero2:
      return '2';
    case Strategy::zero3:
      return '3';
    case Strategy::hybrid:
      return 'h';
  }
  return '?';
}

/// Maps parameters to rows, the highest first.
class Axis {
 public:
  explicit Axis(const std::vector<ScalePoint>& points) {
    for (const ScalePoint& point : points) {
      if (!point.fits()) { continue; }
      const double size = log_size(point);
      low_ = std::min(low_, size);
      high_ = std::max(high_, size);
    }
  }
  [[nodiscard]] bool empty() const { return low_ > high_; }
  [[nodiscard]] int rows() const { return high_ - low_ < 1e-9 ? 1 : kRows; }
  [[nodiscard]] int row_of(const ScalePoint& point) const {
    if (rows() == 1) { return 0; }
    return static_cast<int>(std::lround((high_ - log_size(point)) / (high_ - low_) * (kRows - 1)));
  }
  [[nodiscard]] std::int64_t at(int row) const {
    const double share = rows() == 1 ? 0 : static_cast<double>(row) / (kRows - 1);
    return std::llround(std::pow(10.0, high_ - share * (high_ - low_)));
  }

 private:
  static double log_size(const ScalePoint& point) {
    return std::log10(static_cast<double>(point.model.parameter_elems()));
  }
  double low_ = 1e9;
  double high_ = -1e9;
};

/// The strategies whose largest model on `ranks` belongs to `row`.
std::string cell(const ScaleResult& result, const Axis& axis, int ranks, int row) {
  std::string letters;
  for (const Strategy strategy : result.settings.strategies) {
    const ScalePoint& point = *result.find(strategy, ranks);
    if (point.fits() && axis.row_of(point) == row) { letters += letter(strategy); }
  }
  return letters;
}

/// The chart of some of the numbers of ranks.
std::string panel(const ScaleResult& result, const Axis& axis, std::span<const int> ranks) {
  std::string text;
  for (int row = 0; row < axis.rows(); ++row) {
    const std::string label = row % 2 == 0 ? format_count(axis.at(row)) : "";
    std::string line = fmt::format("{:>{}} |", label, kLabelWidth);
    for (const int n : ranks) {
      line += fmt::format("{:>{}}", cell(result, axis, n, row), kColumnWidth);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += fmt::format("{:>{}} +{:->{}}\n", "", kLabelWidth, "", kColumnWidth * ranks.size());
  text += fmt::format("{:>{}}  ", "ranks", kLabelWidth);
  for (const int n : ranks) { text += fmt::format("{:>{}}", n, kColumnWidth); }
  return text + "\n";
}

}  // namespace

std::string scale_chart(const ScaleResult& result) {
  const Axis axis{result.points};
  if (axis.empty()) { return ""; }
  std::string text = "parameters, logarithmic;";
  for (const Strategy strategy : result.settings.strategies) {
    text += fmt::format("  {} {}", letter(strategy), to_string(strategy));
  }
  text += "\n";
  const std::span<const int> all{result.settings.rank_counts};
  for (std::size_t first = 0; first < all.size(); first += kMostColumns) {
    text += panel(result, axis, all.subspan(first, std::min(kMostColumns, all.size() - first)));
  }
  return text;
}

}  // namespace tessera::tools
