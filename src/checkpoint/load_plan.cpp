#include "checkpoint/load_plan.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "checkpoint/manifest_state.hpp"
#include "checkpoint/state_names.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/moment_format.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::checkpoint {
namespace {

using engine::StateFormat;
using engine::StateKind;
using engine::StateTensorInfo;
using How = TensorRecipe::How;

/// Makes the recipes of one load.
class Planner {
 public:
  Planner(const engine::TrainingState& state, const Manifest& manifest, const LoadOptions& options,
          const std::string& path, LoadPlan& plan)
      : state_{state}, manifest_{manifest}, options_{options}, path_{path}, plan_{plan} {
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
      by_name_.emplace(std::pair{manifest.tensors[i].role, manifest.tensors[i].name}, i);
    }
    for (const StateTensorInfo& info : state.tensors()) {
      if (info.kind == StateKind::remainder) { has_remainder_.insert(info.parameter); }
    }
  }

  void make() {
    if (everything()) { require_same_optimizer(); }
    for (const StateTensorInfo& info : state_.tensors()) { plan_.recipes.push_back(recipe(info)); }
    for (const ManifestTensor& tensor : manifest_.tensors) {
      if (tensor.role == "weight" && !claimed_.contains(tensor.name)) {
        plan_.unexpected.push_back(tensor.name);
      }
    }
    if (everything()) {
      require_complete();
    } else if (!options_.allow_partial) {
      require_same_weights();
    }
  }

 private:
  [[nodiscard]] bool everything() const { return options_.what == LoadOptions::What::everything; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError{fmt::format("{}: {}", path_, why)};
  }

  [[nodiscard]] std::string in_state(const char* name) const {
    const auto found = manifest_.state.find(name);
    return found == manifest_.state.end() ? std::string{} : found->second;
  }

  void require_same_optimizer() const {
    const std::string theirs = in_state("optimizer");
    if (theirs != state_.optimizer_name()) {
      refuse(
          fmt::format("the checkpoint is of optimizer '{}', but the model is trained by '{}'; "
                      "train with the checkpoint's optimizer, or load only the weights",
                      shown(theirs), state_.optimizer_name()));
    }
  }

  /// The array of the parameter whose weight is named `weight` in the files.
  [[nodiscard]] std::optional<std::size_t> find(StateKind kind, const ParameterInfo& parameter,
                                                const std::string& weight, int index = 0) const {
    const auto found = by_name_.find({std::string{role_of(kind)}, state_name(weight, kind, index)});
    if (found == by_name_.end()) { return {}; }
    const ManifestTensor& tensor = at(found->second);
    const bool scales = kind == StateKind::scales;
    const std::int64_t elems = parameter.shape.elems();
    const Shape shape = scales ? Shape{(elems + kMomentBlock - 1) / kMomentBlock} : parameter.shape;
    if (tensor.shape != shape) {
      refuse(
          fmt::format("{}: tensor '{}' has shape {}, but the model's parameter '{}' has shape {}",
                      shown(tensor.file), shown(tensor.name), tensor.shape.to_string(),
                      parameter.full_name(), shape.to_string()));
    }
    if (!may_be(tensor.role, tensor.dtype)) {  // in files of other programs
      throw FormatError{
          fmt::format("{}: tensor '{}' is {}; weights are F32, BF16 or F16, convert the file",
                      shown(tensor.file), shown(tensor.name), shown(tensor.dtype))};
    }
    return found->second;
  }

  [[nodiscard]] const ManifestTensor& at(std::size_t tensor) const {
    return manifest_.tensors[tensor];
  }

  TensorSource source(std::size_t tensor) {
    return {.tensor = tensor, .summed = summed_.insert(tensor).second};
  }

  TensorRecipe recipe(const StateTensorInfo& info) {
    const std::string weight = weight_name(*info.parameter, options_.name);
    claimed_.insert(weight);
    if (options_.what == LoadOptions::What::weights && options_.only && !options_.only(weight)) {
      return {};
    }
    const bool moment = info.kind == StateKind::moment || info.kind == StateKind::scales;
    if (moment) { return everything() ? moment_recipe(info, weight) : TensorRecipe{How::zeros}; }
    const std::optional<std::size_t> own = find(StateKind::weight, *info.parameter, weight);
    if (!own) {
      if (info.kind == StateKind::weight) { plan_.missing.push_back(weight); }
      return {};
    }
    return weight_recipe(info, weight, *own);
  }

  // A bf16 weight and its remainder belong together: both come from one file, or both are made from
  // one fp32 value.
  TensorRecipe weight_recipe(const StateTensorInfo& info, const std::string& weight,
                             std::size_t own) {
    const std::optional<std::size_t> remainder =
        find(StateKind::remainder, *info.parameter, weight);
    const bool completed = at(own).dtype == "BF16" && remainder.has_value();
    if (info.kind == StateKind::remainder && completed) {
      return {.how = How::copy, .from = source(*remainder)};
    }
    const bool apart = has_remainder_.contains(info.parameter) && !completed;
    const std::optional<std::size_t> master = find(StateKind::master, *info.parameter, weight);
    if (info.kind == StateKind::weight && at(own).dtype == dtype_name(info.format) &&
        !(apart && master)) {
      return {.how = How::copy, .from = source(own)};
    }
    if (info.kind == StateKind::master && master) {
      return {.how = How::copy, .from = source(*master)};
    }
    if (master) { return {.how = How::convert, .from = source(*master)}; }
    TensorRecipe joined{.how = How::convert, .from = source(own)};
    if (completed) { joined.beside = source(*remainder); }
    return joined;
  }

  TensorRecipe moment_recipe(const StateTensorInfo& info, const std::string& weight) {
    const std::optional<std::size_t> moment =
        find(StateKind::moment, *info.parameter, weight, info.index);
    if (!moment) {
      lacking_.push_back(state_name(weight, StateKind::moment, info.index));
      return {};
    }
    used_moments_.insert(*moment);
    const std::optional<std::size_t> scales =
        find(StateKind::scales, *info.parameter, weight, info.index);
    const std::string_view own =
        dtype_name(info.kind == StateKind::scales ? StateFormat::u8 : info.format);
    const std::string& theirs = at(*moment).dtype;
    if (theirs != own && !options_.convert_moments) {
      refuse(
          fmt::format("the checkpoint's moments are {}, but the model's are {}; choose the "
                      "checkpoint's format, or convert them (LoadOptions::convert_moments)",
                      in_state("moments"), moments_of(state_)));
    }
    if (theirs == own) {
      return {.how = How::copy, .from = source(info.kind == StateKind::scales ? *scales : *moment)};
    }
    TensorRecipe converted{.how = How::convert, .from = source(*moment)};
    if (theirs == "U8") { converted.beside = source(*scales); }
    return converted;
  }

  void require_same_weights() const {
    std::vector<std::string> unexpected = plan_.unexpected;
    std::erase_if(unexpected,
                  [&](const std::string& name) { return options_.only && !options_.only(name); });
    if (plan_.missing.empty() && unexpected.empty()) { return; }
    const auto lists = [](const char* text, const std::vector<std::string>& names) {
      return names.empty() ? std::string{} : fmt::format("{} {};", text, shown_names(names));
    };
    throw FormatError{fmt::format("{}:{}{} check the names (`name`), or set `allow_partial`", path_,
                                  lists(" the files lack the model's", plan_.missing),
                                  lists(" the model lacks the files'", unexpected))};
  }

  void require_complete() const {
    if (!plan_.missing.empty()) {
      refuse(fmt::format("the model's {} is not in the checkpoint, which is of another model",
                         shown_names(plan_.missing)));
    }
    if (!plan_.unexpected.empty()) {
      refuse(fmt::format(
          "the model has no parameter for the checkpoint's {}, which is of another model",
          shown_names(plan_.unexpected)));
    }
    if (!lacking_.empty()) {
      refuse(
          fmt::format("the optimizer's state {} is not in the checkpoint: those parameters were "
                      "frozen, or the optimizer kept fewer moments",
                      shown_names(lacking_)));
    }
    std::vector<std::string> left;
    for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
      if (at(i).role == "moment" && !used_moments_.contains(i)) { left.push_back(at(i).name); }
    }
    if (!left.empty()) {
      refuse(
          fmt::format("the checkpoint has the optimizer's state {}, which the model's optimizer "
                      "does not keep: those parameters are frozen, or it keeps fewer moments",
                      shown_names(left)));
    }
  }

  const engine::TrainingState& state_;
  const Manifest& manifest_;
  const LoadOptions& options_;
  const std::string& path_;
  LoadPlan& plan_;
  std::map<std::pair<std::string, std::string>, std::size_t> by_name_;  // role and name
  std::set<const ParameterInfo*> has_remainder_;
  std::set<std::string> claimed_;
  std::set<std::size_t> summed_;
  std::set<std::size_t> used_moments_;
  std::vector<std::string> lacking_;
};

}  // namespace

LoadPlan::LoadPlan(const engine::TrainingState& state, const Manifest& manifest,
                   const LoadOptions& options, const std::string& path) {
  Planner{state, manifest, options, path, *this}.make();
}

}  // namespace tessera::checkpoint
