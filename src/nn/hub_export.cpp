// Writes a decoder in the hub's format.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include "nn/hub_fields.hpp"
#include "nn/hub_transpose.hpp"
#include "tessera/base/atomic_file.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/nn/hub.hpp"

namespace tessera::nn {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A folder that gets its name when it is complete.
class NewFolder {
 public:
  explicit NewFolder(fs::path target) : target_{std::move(target)}, partial_{target_} {
    if (!partial_.has_filename()) { partial_ = target_ = target_.parent_path(); }
    partial_ += ".partial";
    std::error_code failed;
    if (fs::exists(target_, failed) &&
        !(fs::is_directory(target_, failed) && fs::is_empty(target_, failed))) {
      throw ConfigError(fmt::format(
          "{} exists and is not an empty folder; remove it or name another", target_.string()));
    }
    made_ = fs::create_directory(partial_, failed);
    if (failed) {
      throw Error(
          fmt::format("cannot make the folder {}: {}", partial_.string(), failed.message()));
    }
    if (!made_) {
      throw ConfigError(
          fmt::format("{} exists: another export writes to it, or one was killed; "
                      "remove it in that case",
                      partial_.string()));
    }
  }
  ~NewFolder() {
    std::error_code ignored;
    if (made_) { fs::remove_all(partial_, ignored); }
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  [[nodiscard]] fs::path operator/(const std::string& name) const { return partial_ / name; }

  void publish() {
    std::error_code failed;
    fs::rename(partial_, target_, failed);
    if (failed) {
      throw Error(fmt::format("cannot rename {} to {}: {}", partial_.string(), target_.string(),
                              failed.message()));
    }
    made_ = false;
  }

 private:
  fs::path target_;
  fs::path partial_;
  bool made_ = false;
};

void write_json(const fs::path& path, const json& value) {
  const std::string text = value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  AtomicFile file{path};
  file.write(std::as_bytes(std::span{text}));
  file.finish();
}

const char* file_dtype(DType dtype) {
  return dtype == DType::bf16 ? "BF16" : dtype == DType::fp16 ? "F16" : "F32";
}

/// A tensor to be written, and the parameter that it is part of.
struct Tensor {
  HubPiece piece;
  std::size_t parameter = 0;
  std::size_t file = 0;
};

// Values in the dtype of the file.
class Narrowed {
 public:
  Narrowed(DType dtype, std::string tensor) : dtype_{dtype}, tensor_{std::move(tensor)} {}

  [[nodiscard]] std::span<const std::byte> of(std::span<const float> values) {
    if (dtype_ == DType::fp32) { return std::as_bytes(values); }
    bits_.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      bits_[i] = dtype_ == DType::bf16 ? bits_of<bfloat16>(values[i]) : bits_of<float16>(values[i]);
    }
    return std::as_bytes(std::span{bits_});
  }

 private:
  template <class Half>
  [[nodiscard]] std::uint16_t bits_of(float value) const {
    const Half half = Half::from_float(value);
    if (std::isfinite(value) && !std::isfinite(half.to_float())) {
      throw ConfigError(
          fmt::format("tensor '{}' has the value {}, beyond the range of {}; export "
                      "the weights in fp32",
                      tensor_, value, to_string(dtype_)));
    }
    return half.bits;
  }

  DType dtype_;
  std::string tensor_;
  std::vector<std::uint16_t> bits_;
};

class Exporter {
 public:
  Exporter(const HubConfig& config, const Initializer& weights, const HubExportOptions& options)
      : weights_{weights}, options_{options}, parameters_{parameters_of(config.decoder)} {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (HubPiece& piece : hub_pieces(config, parameters_[p])) {
        const std::uint64_t bytes = bytes_of(piece);
        if (file_bytes_ > 0 && file_bytes_ + bytes > options.shard_bytes) {
          ++files_;
          file_bytes_ = 0;
        }
        file_bytes_ += bytes;
        all_bytes_ += bytes;
        tensors_.push_back({std::move(piece), p, files_ - 1});
      }
    }
  }

  void write(const NewFolder& folder) {
    json index;
    for (std::size_t file = 0; file < files_; ++file) {
      const std::string name = file_name(file);
      const auto of_file = std::ranges::equal_range(tensors_, file, {}, &Tensor::file);
      std::vector<SafetensorsWriter::Declared> declared;
      for (const Tensor& tensor : of_file) {
        declared.push_back({tensor.piece.tensor, tensor.piece.shape, file_dtype(options_.dtype)});
        index["weight_map"][tensor.piece.tensor] = name;
      }
      SafetensorsWriter writer{folder / name, std::move(declared)};
      for (const Tensor& tensor : of_file) { write(writer, tensor); }
      writer.finish();
    }
    index["metadata"]["total_size"] = all_bytes_;
    if (files_ > 1) { write_json(folder / "model.safetensors.index.json", index); }
  }

 private:
  [[nodiscard]] std::uint64_t bytes_of(const HubPiece& piece) const {
    return static_cast<std::uint64_t>(piece.shape.elems()) * size_of(options_.dtype);
  }

  [[nodiscard]] std::string file_name(std::size_t file) const {
    if (files_ == 1) { return "model.safetensors"; }
    return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files_);
  }

  // The tensors of a parameter follow each other, so it is read once.
  void load(std::size_t parameter) {
    if (loaded_ == parameter) { return; }
    values_.resize(static_cast<std::size_t>(parameters_[parameter].shape.elems()));
    weights_(parameters_[parameter], 0, values_);
    loaded_ = parameter;
  }

  void write(SafetensorsWriter& writer, const Tensor& tensor) {
    load(tensor.parameter);
    const HubPiece& piece = tensor.piece;
    Narrowed narrowed{options_.dtype, piece.tensor};
    if (piece.transposed) { return write_transposed(writer, tensor, narrowed); }
    const bool vector = piece.shape.rank() == 1;
    std::span<const float> left =
        std::span{values_}.subspan(vector ? static_cast<std::size_t>(piece.first_column) : 0,
                                   static_cast<std::size_t>(piece.shape.elems()));
    while (!left.empty()) {
      const std::size_t count = std::min<std::size_t>(left.size(), kHubBlockElems);
      writer.write_bytes(piece.tensor, narrowed.of(left.first(count)));
      left = left.subspan(count);
    }
  }

  void write_transposed(SafetensorsWriter& writer, const Tensor& tensor, Narrowed& narrowed) {
    const HubPiece& piece = tensor.piece;
    const std::int64_t rows = piece.shape[1];
    const std::int64_t row_elems = parameters_[tensor.parameter].shape[1];
    const std::int64_t most = std::max<std::int64_t>(1, kHubBlockElems / rows);
    for (std::int64_t column = 0; column < piece.columns; column += most) {
      const std::int64_t count = std::min(most, piece.columns - column);
      block_.resize(static_cast<std::size_t>(count * rows));
      hub_transpose({values_.data() + piece.first_column + column, row_elems},
                    {block_.data(), rows}, count, rows);
      writer.write_bytes(piece.tensor, narrowed.of(block_));
    }
  }

  const Initializer& weights_;
  const HubExportOptions& options_;
  std::vector<ParameterInfo> parameters_;
  std::vector<Tensor> tensors_;
  std::size_t files_ = 1;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t all_bytes_ = 0;
  std::vector<float> values_;
  std::size_t loaded_ = std::numeric_limits<std::size_t>::max();
  std::vector<float> block_;
};

json generation_fields(const json& fields) {
  json generation{{"_from_model_config", true}};
  for (const char* const token : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!fields.at(token).is_null()) { generation[token] = fields.at(token); }
  }
  return generation;
}

}  // namespace

void export_hub(const fs::path& folder, const HubConfig& config, const Initializer& weights,
                const HubExportOptions& options) {
  expects(options.dtype != DType::fp64, "export_hub: `dtype` is fp32, bf16 or fp16");
  expects(options.shard_bytes > 0, "export_hub: `shard_bytes` is at least 1");
  const json fields = hub_fields(config, options.dtype);
  Exporter exporter{config, weights, options};
  NewFolder made{folder};
  exporter.write(made);
  write_json(made / "generation_config.json", generation_fields(fields));
  write_json(made / "config.json", fields);
  made.publish();
}

}  // namespace tessera::nn
