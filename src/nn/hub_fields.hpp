#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/hub_family.hpp"
#include "tessera/base/dtype.hpp"
#include "tessera/nn/hub.hpp"

namespace tessera::nn {

/// Names of dtypes in config.json.
inline constexpr std::array<std::pair<const char*, DType>, 3> kHubDTypes{
    {{"float32", DType::fp32}, {"bfloat16", DType::bf16}, {"float16", DType::fp16}}};

/// The most elements of a block of weights in fp32: 16 MiB.
inline constexpr std::int64_t kHubBlockElems = std::int64_t{4} << 20;

/// The fields of a JSON object in config.json. It notes which ones were read, so that none is
/// passed over. Errors are FormatErrors with path, field, value and what is expected. The object
/// outlives it.
class HubFields {
 public:
  /// `within`: the field that the object is, followed by a dot; empty for the file's own object.
  HubFields(std::string path, const nlohmann::json& object, std::string within = {});

  /// The field; null if it is absent or null.
  [[nodiscard]] const nlohmann::json* take(std::string_view field);
  [[nodiscard]] bool is_absent(std::string_view field) const { return !object_.contains(field); }
  /// A whole number from `least` to 2^62.
  [[nodiscard]] std::int64_t whole(std::string_view field, std::optional<std::int64_t> otherwise,
                                   std::int64_t least = 1);
  [[nodiscard]] std::optional<double> number(std::string_view field);
  [[nodiscard]] bool flag(std::string_view field, bool otherwise);

  /// The fields that have not been read.
  [[nodiscard]] std::vector<std::string> rest() const;
  [[noreturn]] void refuse(std::string_view field, std::string_view expected) const;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  const nlohmann::json& object_;
  std::string within_;
  std::set<std::string, std::less<>> taken_;
};

/// Reads the fields of the file `path`; throws as read_hub_config does.
[[nodiscard]] HubConfig parse_hub_config(const std::string& path, const nlohmann::json& object);
/// The fields of `config` for weights of `dtype`, for transformers 4 and 5. Throws ConfigError for
/// parts that its family does not have.
[[nodiscard]] nlohmann::json hub_fields(const HubConfig& config, DType dtype);

/// Parameters of a Decoder on one rank, in the order of declaration.
[[nodiscard]] std::vector<ParameterInfo> parameters_of(const DecoderConfig& config);

}  // namespace tessera::nn
