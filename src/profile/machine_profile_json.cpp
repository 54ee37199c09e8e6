#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "profile/machine_profile_error.hpp"
#include "tessera/base/error.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using profile::refuse_profile;

using Sizes = std::array<std::int64_t, 3>;

constexpr const char* kVersionKey = "tessera_machine";

/// Whether T holds `value` without loss: nlohmann's conversion truncates.
template <class T>
bool fits(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_integral_v<T>) {
    return value.is_number_unsigned()  ? std::in_range<T>(value.get<std::uint64_t>())
           : value.is_number_integer() ? std::in_range<T>(value.get<std::int64_t>())
                                       : false;
  } else if constexpr (std::is_floating_point_v<T>) {
    return value.is_number();
  } else if constexpr (std::is_same_v<T, Sizes>) {
    return value.is_array() && value.size() == Sizes{}.size() &&
           std::all_of(value.begin(), value.end(), fits<Sizes::value_type>);
  } else {
    return true;  // its own conversion reports the error
  }
}

/// One object of the document, which may only have known keys.
class Object {
 public:
  Object(const Json& json, std::string where, std::initializer_list<const char*> keys)
      : json_{json}, where_{std::move(where)} {
    if (!json.is_object()) { refuse_profile(fmt::format("has no object as {}", where_)); }
    for (const auto& [key, value] : json.items()) {
      const bool known =
          std::any_of(keys.begin(), keys.end(), [&name = key](const char* k) { return name == k; });
      if (!known) { refuse_profile(fmt::format("has an unknown key '{}' in {}", key, where_)); }
    }
  }

  template <class T>
  [[nodiscard]] T get(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) { refuse_profile(fmt::format("has no '{}' in {}", key, where_)); }
    return as<T>(*found, key);
  }
  template <class T>
  [[nodiscard]] T get(const char* key, T otherwise) const {
    const auto found = json_.find(key);
    return found == json_.end() ? std::move(otherwise) : as<T>(*found, key);
  }
  [[nodiscard]] const Json& child(const char* key) const {
    static const Json none = Json::array();
    const auto found = json_.find(key);
    return found == json_.end() ? none : *found;
  }

 private:
  template <class T>
  [[nodiscard]] T as(const Json& value, const char* key) const {
    try {
      if (!fits<T>(value)) { throw_another_type(key); }
      return value.get<T>();
    } catch (const Json::exception&) { throw_another_type(key); }
  }
  [[noreturn]] void throw_another_type(const char* key) const {
    refuse_profile(fmt::format("has a '{}' in {} of the wrong type or size", key, where_));
  }

  const Json& json_;
  std::string where_;
};

CollectiveWay way_of(const std::string& name) {
  if (name == "ring") { return CollectiveWay::ring; }
  if (name == "direct") { return CollectiveWay::direct; }
  refuse_profile(fmt::format("has collectives '{}'; choose ring or direct", name));
}

std::string_view name_of(CollectiveWay way) {
  return way == CollectiveWay::ring ? "ring" : "direct";
}

LinkLevel level_of(const Json& json) {
  const Object object{json, "levels", {"name", "ranks", "bytes_per_second", "step_seconds"}};
  return {.name = object.get<std::string>("name"),
          .ranks = object.get<int>("ranks", 0),
          .bytes_per_second = object.get<double>("bytes_per_second"),
          .step_seconds = object.get<std::vector<double>>("step_seconds")};
}

LinkProtocol protocol_of(const Json& json) {
  const Object object{json, "protocols", {"name", "bandwidth_share", "start_seconds"}};
  return {.name = object.get<std::string>("name"),
          .bandwidth_share = object.get<double>("bandwidth_share", 1.0),
          .start_seconds = object.get<double>("start_seconds")};
}

KernelSample sample_of(const Json& json) {
  const Object object{
      json, "kernels", {"kernel", "dtype", "sizes", "flops", "bytes", "seconds", "shared_seconds"}};
  return {.work = {.name = object.get<std::string>("kernel"),
                   .dtype = parse_dtype(object.get<std::string>("dtype")),
                   .flops = object.get<double>("flops"),
                   .bytes = object.get<double>("bytes"),
                   .sizes = object.get<Sizes>("sizes")},
          .seconds = object.get<double>("seconds"),
          .shared_seconds = object.get<double>("shared_seconds", 0.0)};
}

Json json_of(const KernelSample& sample) {
  return {{"kernel", sample.work.name},
          {"dtype", to_string(sample.work.dtype)},
          {"sizes", sample.work.sizes},
          {"flops", sample.work.flops},
          {"bytes", sample.work.bytes},
          {"seconds", sample.seconds},
          {"shared_seconds", sample.shared_seconds}};
}

MachineProfile profile_of(const Json& json) {
  const Object object{
      json,
      "its outermost object",
      {kVersionKey, "name", "source", "cores", "flops_per_second", "vector_flops_per_second",
       "bytes_per_second", "host_bytes_per_second", "kernel_seconds", "enqueue_seconds",
       "speed_beside_collectives", "collectives", "reduce_bytes_per_second", "protocols", "levels",
       "kernels", "measured"}};
  const int version = object.get<int>(kVersionKey);
  if (version != MachineProfile::kVersion) {
    refuse_profile(fmt::format("is of version {}, but this build reads version {}", version,
                               MachineProfile::kVersion));
  }
  MachineProfile profile;
  profile.name = object.get<std::string>("name");
  profile.source = object.get<std::string>("source", "");
  profile.cores = object.get<int>("cores", 0);
  for (const auto& [name, rate] : object.get<std::map<std::string, double>>("flops_per_second")) {
    profile.flops_per_second[parse_dtype(name)] = rate;
  }
  profile.vector_flops_per_second = object.get<double>("vector_flops_per_second", 0.0);
  profile.bytes_per_second = object.get<double>("bytes_per_second");
  profile.host_bytes_per_second = object.get<double>("host_bytes_per_second", 0.0);
  profile.kernel_seconds = object.get<double>("kernel_seconds", 0.0);
  profile.enqueue_seconds = object.get<double>("enqueue_seconds", 0.0);
  profile.speed_beside_collectives = object.get<double>("speed_beside_collectives", 1.0);
  profile.way = way_of(object.get<std::string>("collectives"));
  profile.reduce_bytes_per_second = object.get<double>("reduce_bytes_per_second", 0.0);
  for (const Json& one : object.child("protocols")) {
    profile.protocols.push_back(protocol_of(one));
  }
  for (const Json& one : object.child("levels")) { profile.levels.push_back(level_of(one)); }
  for (const Json& one : object.child("kernels")) { profile.kernels.push_back(sample_of(one)); }
  return profile;
}

}  // namespace

MachineProfile parse_machine_profile(std::string_view json) {
  Json document;
  try {
    document = Json::parse(json);
  } catch (const Json::exception& error) {
    refuse_profile(fmt::format("is not JSON: {}", error.what()));
  }
  MachineProfile profile = profile_of(document);
  profile.validate();
  return profile;
}

std::string machine_profile_json(const MachineProfile& profile) {
  Json rates = Json::object();
  for (const auto& [dtype, rate] : profile.flops_per_second) {
    rates[std::string{to_string(dtype)}] = rate;
  }
  Json protocols = Json::array();
  for (const LinkProtocol& p : profile.protocols) {
    protocols.push_back({{"name", p.name},
                         {"bandwidth_share", p.bandwidth_share},
                         {"start_seconds", p.start_seconds}});
  }
  Json levels = Json::array();
  for (const LinkLevel& level : profile.levels) {
    levels.push_back({{"name", level.name},
                      {"ranks", level.ranks},
                      {"bytes_per_second", level.bytes_per_second},
                      {"step_seconds", level.step_seconds}});
  }
  Json kernels = Json::array();
  for (const KernelSample& sample : profile.kernels) { kernels.push_back(json_of(sample)); }
  const Json json = {{kVersionKey, MachineProfile::kVersion},
                     {"name", profile.name},
                     {"source", profile.source},
                     {"cores", profile.cores},
                     {"flops_per_second", rates},
                     {"vector_flops_per_second", profile.vector_flops_per_second},
                     {"bytes_per_second", profile.bytes_per_second},
                     {"host_bytes_per_second", profile.host_bytes_per_second},
                     {"kernel_seconds", profile.kernel_seconds},
                     {"enqueue_seconds", profile.enqueue_seconds},
                     {"speed_beside_collectives", profile.speed_beside_collectives},
                     {"collectives", name_of(profile.way)},
                     {"reduce_bytes_per_second", profile.reduce_bytes_per_second},
                     {"protocols", protocols},
                     {"levels", levels},
                     {"kernels", kernels}};
  return json.dump(2) + "\n";
}

}  // namespace tessera
