#include "tessera/checkpoint/weights.hpp"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {
namespace {

// What export_state will deliver, in its order.
std::vector<SafetensorsWriter::Declared> declare(const ShardedModel& model,
                                                 const WeightName& name) {
  std::vector<SafetensorsWriter::Declared> tensors;
  std::uint32_t id = 0;
  for (std::size_t u = 0; u < model.unit_count(); ++u) {
    for (const ParameterSpec& spec : model.layout(model.unit(u)).specs()) {
      if (spec.tied_to) { continue; }
      const ParameterInfo info{model.unit_name(model.unit(u)), spec.name, spec.shape,
                               spec.trainable, id++};
      tensors.push_back({name(info), spec.shape});
    }
  }
  return tensors;
}

void make_folder_of(const std::filesystem::path& path) {
  if (!path.has_parent_path()) { return; }
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  if (failed) {
    throw Error(fmt::format("cannot make the folder {}: {}", path.parent_path().string(),
                            failed.message()));
  }
}

// Rank 0's file. A failure is kept until the collective is over, so that no other rank waits alone
// in the middle of it.
class WeightsFile {
 public:
  WeightsFile(const ShardedModel& model, const std::filesystem::path& path, const WeightName& name)
      : name_{name} {
    attempt([&] {
      make_folder_of(path);
      writer_.emplace(path, declare(model, name));
    });
  }

  void write(const ParameterInfo& parameter, std::span<const float> values) {
    attempt([&] { writer_->write(name_(parameter), values); });
  }
  void finish() {
    attempt([&] { writer_->finish(); });
  }
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

 private:
  template <class Action>
  void attempt(Action&& action) {
    if (failure_) { return; }
    try {
      action();
    } catch (...) { failure_ = std::current_exception(); }
  }

  const WeightName& name_;
  std::optional<SafetensorsWriter> writer_;
  std::exception_ptr failure_;
};

std::string text_of(const std::exception_ptr& failure) {
  if (!failure) { return {}; }
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) { return error.what(); } catch (...) {
    return "unknown error";
  }
}

// The file, shared by the copies of one initializer.
struct SharedReader {
  explicit SharedReader(const std::filesystem::path& path) : reader{path} {}
  std::mutex mutex;
  SafetensorsReader reader;
};

void check_entry(const SafetensorsReader& reader, const ParameterInfo& parameter,
                 const std::string& tensor) {
  const auto found = reader.entries().find(tensor);
  if (found == reader.entries().end()) {
    throw FormatError(fmt::format(
        "{}: there is no tensor '{}' for parameter '{}'; check that the file is of this model",
        reader.path().string(), shown(tensor), shown(parameter.full_name())));
  }
  if (found->second.shape != parameter.shape) {
    throw FormatError(fmt::format("{}: byte {}: tensor '{}' has shape {}, but the model expects {}",
                                  found->second.file.string(), found->second.first_byte,
                                  shown(tensor), found->second.shape.to_string(),
                                  parameter.shape.to_string()));
  }
}

}  // namespace

void save_weights(ShardedModel& model, const std::filesystem::path& path, const WeightName& name) {
  World& world = model.world();
  std::optional<WeightsFile> file;
  if (world.rank() == 0) { file.emplace(model, path, name); }
  model.export_state(StateTensor::parameters,
                     [&](const ParameterInfo& parameter, std::span<const float> values) {
                       if (file) { file->write(parameter, values); }
                     });
  if (file) { file->finish(); }

  const std::exception_ptr failure = file ? file->failure() : nullptr;
  const std::string reason = world.exchange(text_of(failure)).front();
  if (failure) { std::rethrow_exception(failure); }
  if (!reason.empty()) { throw Error(reason); }
}

Initializer weights_from(const std::filesystem::path& path, WeightName name) {
  const auto shared = std::make_shared<SharedReader>(path);
  return [shared, name = std::move(name)](const ParameterInfo& parameter, std::int64_t first,
                                          std::span<float> out) {
    const std::string tensor = name(parameter);
    const std::lock_guard lock{shared->mutex};
    check_entry(shared->reader, parameter, tensor);
    shared->reader.read(tensor, first, out);
  };
}

}  // namespace tessera
