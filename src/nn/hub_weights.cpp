// Reads parts of a decoder's parameters from the hub's files.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "nn/hub_fields.hpp"
#include "nn/hub_transpose.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/nn/hub.hpp"

namespace tessera::nn {
namespace {

// Elements [first, first + out.size()) of a parameter with rows of `columns`.
struct Wanted {
  std::int64_t first;
  std::int64_t columns;
  std::span<float> out;

  [[nodiscard]] std::int64_t end() const { return first + std::ssize(out); }
  [[nodiscard]] std::int64_t first_row() const { return first / columns; }
  [[nodiscard]] std::int64_t rows() const { return (end() - 1) / columns + 1 - first_row(); }
};

// Columns [column, column + count) of a wanted row that may be wanted in part.
void scatter_row(const Wanted& wanted, std::span<const float> block, std::int64_t row,
                 std::int64_t column, std::int64_t count) {
  const std::int64_t at = (wanted.first_row() + row) * wanted.columns + column - wanted.first;
  const std::int64_t end = std::min(count, std::ssize(wanted.out) - at);
  for (std::int64_t j = std::max<std::int64_t>(0, -at); j < end; ++j) {
    wanted.out[static_cast<std::size_t>(at + j)] =
        block[static_cast<std::size_t>(j * wanted.rows() + row)];
  }
}

// The same of all wanted rows; `block` has a row for each column.
void scatter(const Wanted& wanted, std::span<const float> block, std::int64_t column,
             std::int64_t count) {
  const std::int64_t rows = wanted.rows();
  scatter_row(wanted, block, 0, column, count);
  if (rows > 1) { scatter_row(wanted, block, rows - 1, column, count); }
  if (rows <= 2) { return; }
  const std::int64_t at = (wanted.first_row() + 1) * wanted.columns + column - wanted.first;
  hub_transpose({block.data() + 1, rows}, {wanted.out.data() + at, wanted.columns}, rows - 2,
                count);
}

class HubFiles {
 public:
  HubFiles(const std::filesystem::path& folder, HubConfig config)
      : config_{std::move(config)}, family_{hub_family(config_.family)}, reader_{folder} {
    std::set<std::string> unexpected;
    for (const auto& [name, entry] : reader_.entries()) { unexpected.insert(name); }
    std::vector<std::string> missing;
    for (const ParameterInfo& parameter : parameters_of(config_.decoder)) {
      for (const HubPiece& piece : hub_pieces(config_, parameter)) {
        const std::string name = stored(piece.tensor);
        if (unexpected.erase(name) == 0) {
          missing.push_back(piece.tensor);
        } else {
          check(name, piece, parameter);
        }
      }
    }
    std::erase_if(unexpected, [&](const std::string& name) { return is_passed_over(name); });
    require_none(missing, "there is no tensor", "which the model of config.json has");
    require_none({unexpected.begin(), unexpected.end()}, "unexpected tensor",
                 "which the model of config.json does not have");
  }

  void read(const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
    if (out.empty()) { return; }
    const std::lock_guard lock{mutex_};
    for (const HubPiece& piece : hub_pieces(config_, parameter)) {
      if (piece.transposed) {
        read_transposed(piece, {first, parameter.shape[1], out});
      } else if (parameter.shape.rank() == 1) {
        read_section(piece, {first, parameter.shape[0], out});
      } else {
        reader_.read(stored(piece.tensor), first, out);
      }
    }
  }

 private:
  [[nodiscard]] std::string stored(const std::string& name) const {
    if (!name.starts_with(family_.prefix) || reader_.entries().contains(name)) { return name; }
    return name.substr(family_.prefix.size());
  }

  [[nodiscard]] bool is_passed_over(const std::string& name) const {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with(".rotary_emb.inv_freq") ||
           (config_.decoder.tied_head && name == "lm_head.weight");
  }

  // A shorter `seq` leaves the last positions of a table in the file.
  void check(const std::string& name, const HubPiece& piece, const ParameterInfo& parameter) const {
    const SafetensorsReader::Entry& found = reader_.entries().at(name);
    const auto refuse = [&](const std::string& what, const std::string& expected) {
      throw FormatError(fmt::format("{}: tensor '{}' has {}, expected {}", found.file.string(),
                                    shown(name), shown(what), expected));
    };
    const bool cut = parameter.name == "wpe.weight" && found.shape.rank() == 2 &&
                     found.shape[0] > piece.shape[0] && found.shape[1] == piece.shape[1];
    if (found.shape != piece.shape && !cut) {
      refuse("shape " + found.shape.to_string(), piece.shape.to_string());
    }
    if (found.dtype != "F32" && found.dtype != "BF16" && found.dtype != "F16") {
      refuse("dtype " + found.dtype, "F32, BF16 or F16");
    }
  }

  void require_none(const std::vector<std::string>& names, const char* what,
                    const char* why) const {
    if (names.empty()) { return; }
    throw FormatError(fmt::format("{}: {} {}, {} ({} of {} layers)", reader_.path().string(), what,
                                  shown_names(names), why, config_.family, config_.decoder.layers));
  }

  void read_section(const HubPiece& piece, const Wanted& wanted) {
    const std::int64_t from = std::max(wanted.first, piece.first_column);
    const std::int64_t end = std::min(wanted.end(), piece.first_column + piece.columns);
    if (from >= end) { return; }
    reader_.read(stored(piece.tensor), from - piece.first_column,
                 wanted.out.subspan(static_cast<std::size_t>(from - wanted.first),
                                    static_cast<std::size_t>(end - from)));
  }

  // The file's row j has column j of all rows: a run of it for the wanted rows.
  void read_transposed(const HubPiece& piece, const Wanted& wanted) {
    const std::string name = stored(piece.tensor);
    const std::int64_t rows = wanted.rows();
    const std::int64_t file_row = piece.shape[1];
    std::int64_t from = piece.first_column;
    std::int64_t end = from + piece.columns;
    if (rows == 1) {
      const std::int64_t before = wanted.first_row() * wanted.columns;
      from = std::max(from, wanted.first - before);
      end = std::min(end, wanted.end() - before);
    }
    const std::int64_t most = std::max<std::int64_t>(1, kHubBlockElems / rows);
    for (std::int64_t column = from; column < end; column += most) {
      const std::int64_t count = std::min(most, end - column);
      block_.resize(static_cast<std::size_t>(count * rows));
      const std::int64_t row = column - piece.first_column;
      const std::int64_t at_once = rows == file_row ? count : 1;
      for (std::int64_t j = 0; j < count; j += at_once) {
        reader_.read(name, (row + j) * file_row + wanted.first_row(),
                     std::span{block_}.subspan(static_cast<std::size_t>(j * rows),
                                               static_cast<std::size_t>(at_once * rows)));
      }
      scatter(wanted, block_, column, count);
    }
    block_ = {};
  }

  HubConfig config_;
  const HubFamily& family_;
  SafetensorsReader reader_;
  std::mutex mutex_;
  std::vector<float> block_;
};

}  // namespace

Initializer hub_weights(const std::filesystem::path& folder, const HubConfig& config) {
  const auto files = std::make_shared<HubFiles>(folder, config);
  return [files](const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
    files->read(parameter, first, out);
  };
}

}  // namespace tessera::nn
