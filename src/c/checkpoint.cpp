#include "tessera/checkpoint/checkpoint.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "c/callbacks.hpp"
#include "c/objects.hpp"
#include "c/structs.hpp"

namespace tessera::c {
namespace {

tessera_save_options save_defaults() {
  tessera_save_options to = {};
  to.size = sizeof to;
  to.shard_bytes = SaveOptions{}.shard_bytes;
  return to;
}

tessera_load_options load_defaults() {
  tessera_load_options to = {};
  to.size = sizeof to;
  return to;
}

CheckpointExtras extras_of(Call call, const tessera_save_options& from) {
  call.require_array(from.values, "values", from.value_count);
  CheckpointExtras extras;
  for (std::size_t i = 0; i < from.value_count; ++i) {
    call.require(from.values[i].name, "the name of a value");
    call.require(from.values[i].text, "the text of a value");
    if (!extras.values.emplace(from.values[i].name, from.values[i].text).second) {
      call.refuse(fmt::format("two values are called '{}'; give each value its own name",
                              from.values[i].name));
    }
  }
  return extras;
}

}  // namespace
}  // namespace tessera::c

using namespace tessera::c;

tessera_status tessera_save_options_init(tessera_save_options* options, size_t size) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_save_options", options, size, save_defaults());
  });
}

tessera_status tessera_load_options_init(tessera_load_options* options, size_t size) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_load_options", options, size, load_defaults());
  });
}

tessera_status tessera_save(tessera_model* model, const char* folder,
                            const tessera_save_options* options) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(folder, "folder");
    const tessera_save_options from =
        given_or(call, "tessera_save_options", options, save_defaults());
    const tessera::SaveOptions how{.name = weight_name(call, from.name, from.name_user),
                                   .shard_bytes = from.shard_bytes};
    (void)tessera::save(found->sharded(), folder, extras_of(call, from), how);
  });
}

tessera_status tessera_newest_checkpoint(const char* folder, char* path, size_t size,
                                         int64_t* step) {
  return guarded(__func__, [&](Call call) {
    call.require(folder, "folder");
    call.require(path, "path");
    const tessera::NewestCheckpoint newest = tessera::newest_checkpoint(folder);
    const std::string text = newest.path.string();
    if (text.size() >= size) {
      call.refuse(fmt::format("`path` has room for {} bytes, but the path needs {}", size,
                              text.size() + 1));
    }
    std::memcpy(path, text.c_str(), text.size() + 1);
    if (step != nullptr) { *step = newest.step; }
  });
}

tessera_status tessera_load(tessera_model* model, const char* path,
                            const tessera_load_options* options) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(path, "path");
    const tessera_load_options from =
        given_or(call, "tessera_load_options", options, load_defaults());
    require_zero(call, "tessera_load_options", from.reserved);
    const bool allows_partial = flag(call, "allow_partial", from.allow_partial);
    if (allows_partial && !flag(call, "weights_only", from.weights_only)) {
      call.refuse("`allow_partial` has no effect without `weights_only`");
    }
    using What = tessera::LoadOptions::What;
    const tessera::LoadOptions how{
        .name = weight_name(call, from.name, from.name_user),
        .what = flag(call, "weights_only", from.weights_only) ? What::weights : What::everything,
        .convert_moments = flag(call, "convert_moments", from.convert_moments),
        .allow_partial = allows_partial};
    const tessera::LoadReport report = tessera::load(found->sharded(), path, {}, how);
    if (from.value == nullptr) { return; }
    for (const auto& [name, text] : report.values) {
      rethrow_from_callback(from.value(name.c_str(), text.c_str(), from.value_user),
                            "the callback for values");
    }
  });
}

tessera_status tessera_save_weights(tessera_model* model, const char* path, tessera_name_fn name,
                                    void* user) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(path, "path");
    tessera::save_weights(found->sharded(), path, weight_name(call, name, user));
  });
}
