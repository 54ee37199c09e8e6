#include "checkpoint/manifest_contents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/manifest_state.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tessera/base/moment_format.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {
namespace {

std::optional<std::string_view> without(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) { return {}; }
  return name.substr(0, name.size() - end.size());
}

/// The inverse of state_name: the weight of an array of `role`.
std::optional<std::string_view> weight_in(std::string_view name, std::string_view role) {
  if (role == "master" || role == "remainder") { return without(name, fmt::format(".{}", role)); }
  if (role == "scales") { name = without(name, ".scales").value_or(""); }
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size()) { return {}; }
  return without(name.substr(0, digits), ".moment_");
}

/// Checks what the tensors of one manifest are to each other.
class Relations {
 public:
  Relations(const std::string& path, const Manifest& manifest) : path_{path}, manifest_{manifest} {
    for (const ManifestTensor& tensor : manifest.tensors) {
      by_name_.try_emplace({tensor.role, tensor.name}, &tensor);
    }
  }

  void check() const {
    for (const ManifestTensor& tensor : manifest_.tensors) {
      if (tensor.role == "weight" || tensor.role == "extra") { continue; }
      check_weight_of(tensor);
      if (tensor.role == "moment" && tensor.dtype == "U8") { check_scales_of(tensor); }
    }
  }

 private:
  [[noreturn]] void refuse(const ManifestTensor& tensor, const std::string& why) const {
    throw FormatError{
        fmt::format("{}: tensor '{}' ({}) {}; no save writes this, use another checkpoint", path_,
                    shown(tensor.name), tensor.role, why)};
  }

  [[nodiscard]] const ManifestTensor* find(std::string_view role, std::string_view name) const {
    const auto found = by_name_.find({role, name});
    return found == by_name_.end() ? nullptr : found->second;
  }

  void check_weight_of(const ManifestTensor& tensor) const {
    const auto name = weight_in(tensor.name, tensor.role);
    const ManifestTensor* const weight = name ? find("weight", *name) : nullptr;
    if (weight == nullptr) { refuse(tensor, "belongs to no weight"); }
    const bool scales = tensor.role == "scales";
    const Shape expected =
        scales ? Shape{ceil_div(weight->shape.elems(), kMomentBlock)} : weight->shape;
    if (tensor.shape == expected) { return; }
    refuse(tensor, fmt::format("has shape {}, but {} would fit its weight",
                               tensor.shape.to_string(), expected.to_string()));
  }

  void check_scales_of(const ManifestTensor& moment) const {
    if (find("scales", moment.name + ".scales") == nullptr) { refuse(moment, "has no scales"); }
  }

  const std::string& path_;
  const Manifest& manifest_;
  std::map<std::pair<std::string_view, std::string_view>, const ManifestTensor*> by_name_;
};

void check_files(const std::string& path, const Manifest& manifest) {
  for (const auto& [name, bytes] : manifest.files) {
    if (checkpoint::serves_any(manifest, name, every_content())) { continue; }
    throw FormatError{
        fmt::format("{}: lists no tensor in {}; no save writes this, use another checkpoint", path,
                    shown(name))};
  }
}

}  // namespace

Content content_of(std::string_view role) noexcept {
  if (role == "weight") { return Content::weights; }
  if (role == "extra") { return Content::buffers; }
  return role == "master" || role == "remainder" ? Content::masters : Content::optimizer;
}

std::string_view to_string(Content content) noexcept {
  switch (content) {
    case Content::weights:
      return "weights";
    case Content::masters:
      return "master weights";
    case Content::optimizer:
      return "optimizer state";
    case Content::buffers:
      break;
  }
  return "buffers";
}

bool checkpoint::serves(const Manifest& manifest, std::string_view file, Content content) {
  const auto base = without(file, checkpoint::kIndexEnd);
  const std::string indexed = base ? fmt::format("{}-", *base) : std::string{};
  return std::ranges::any_of(manifest.tensors, [&](const ManifestTensor& tensor) {
    return content_of(tensor.role) == content &&
           (base ? tensor.file.starts_with(indexed) : tensor.file == file);
  });
}

bool checkpoint::serves_any(const Manifest& manifest, std::string_view file,
                            const Contents& contents) {
  return std::ranges::any_of(
      contents, [&](Content content) { return checkpoint::serves(manifest, file, content); });
}

void checkpoint::check_contents(const std::string& path, const Manifest& manifest) {
  checkpoint::check_counters(path, manifest);
  check_files(path, manifest);
  Relations{path, manifest}.check();
}

}  // namespace tessera
