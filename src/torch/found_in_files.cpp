#include "torch/found_in_files.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/kept_path.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "torch/cast.hpp"
#include "torch/safetensors_dtype.hpp"

namespace tessera::torch {

namespace {

// Runs `work` on rank 0 and returns its texts on all ranks. An exception is thrown on all ranks.
std::vector<std::string> from_rank0(World& world,
                                    const std::function<std::vector<std::string>()>& work) {
  std::string text;
  if (world.rank() == 0) {
    try {
      for (const std::string& one : work()) { text += std::to_string(one.size()) + " " + one; }
    } catch (const FormatError& error) {
      text = std::string{"F"} + error.what();
    } catch (const ConfigError& error) {
      text = std::string{"C"} + error.what();
    } catch (const std::exception& error) { text = std::string{"E"} + error.what(); }
  }
  const std::string told = world.exchange(text).front();
  if (told.starts_with('F')) { throw FormatError{told.substr(1)}; }
  if (told.starts_with('C')) { throw ConfigError{told.substr(1)}; }
  if (told.starts_with('E')) { throw Error{told.substr(1)}; }
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < told.size();) {
    const std::size_t blank = told.find(' ', at);
    const std::size_t size = std::stoull(told.substr(at, blank - at));
    texts.push_back(told.substr(blank + 1, size));
    at = blank + 1 + size;
  }
  return texts;
}

// The files: weights, and the buffers of a checkpoint.
std::vector<SafetensorsReader> readers_of(const std::filesystem::path& path) {
  std::vector<SafetensorsReader> readers;
  // Parts of a checkpoint have another name than the whole; buffers are not searched in them.
  if (!std::filesystem::exists(path) || checkpoint::is_part_folder(path)) { return readers; }
  readers.emplace_back(path);
  const std::filesystem::path extras = path / "extras.safetensors";
  if (std::filesystem::is_directory(path) && std::filesystem::exists(extras)) {
    readers.emplace_back(extras);
  }
  return readers;
}

// The name in the files of `name` in the module.
std::string in_files(const LoadOptions& options, const std::string& name) {
  return options.name(ParameterInfo{.unit = kRootUnit, .name = name, .shape = {}});
}

/// The values of tensor `name` for `buffer`, in the file's type.
at::Tensor values_for(const at::Tensor& buffer, SafetensorsReader& reader,
                      const std::string& name) {
  const SafetensorsReader::Entry& entry = reader.entries().at(name);
  const std::string tensor = shown(entry.file.string()) + ": tensor '" + shown(name) + "'";
  const Shape shape{buffer.sizes().vec()};
  if (entry.shape != shape) {
    throw ConfigError{tensor + " has shape " + entry.shape.to_string() +
                      ", but the module's buffer has shape " + shape.to_string()};
  }
  const std::optional<at::ScalarType> type = type_of_safetensors(entry.dtype);
  if (!type) {
    throw FormatError{tensor + " is " + shown(entry.dtype) +
                      ", a dtype that libtorch does not have"};
  }
  const at::Tensor values =
      at::empty(buffer.sizes(), at::TensorOptions{}.dtype(*type).device(at::kCPU));
  reader.read_bytes(name, 0, {static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
  const std::string lost = lost_by_cast(values, buffer.scalar_type());
  if (!lost.empty()) {
    throw ConfigError{tensor + ": " + lost +
                      ", the type of the module's buffer; give the buffer a type that holds them, "
                      "or convert the file"};
  }
  return values;
}

}  // namespace

FoundInFiles::FoundInFiles(World& world, const std::filesystem::path& path,
                           const std::vector<ModuleUnit>& units, ModuleBuffers& buffers,
                           const LoadOptions& options)
    : world_{world}, path_{kept_path(path)}, units_{units}, buffers_{buffers}, options_{options} {
  std::vector<const std::vector<std::string>*> asked;  // several names in the module of one tensor
  for (const ModuleUnit& unit : units_) {
    for (const ModuleParameter& parameter : unit.parameters) {
      if (parameter.names.size() > 1) { asked.push_back(&parameter.names); }
    }
  }
  const std::size_t parameters = asked.size();
  for (const ModuleBuffer& buffer : buffers_.all()) { asked.push_back(&buffer.names); }
  // The name in the module that the files have; empty: none.
  const std::vector<std::string> found = from_rank0(world_, [&] {
    const std::vector<SafetensorsReader> readers = readers_of(path_);
    const auto has = [&](const std::string& name) {
      return std::any_of(readers.begin(), readers.end(), [&](const SafetensorsReader& reader) {
        return reader.entries().contains(in_files(options_, name));
      });
    };
    std::vector<std::string> names;
    for (const std::vector<std::string>* const candidates : asked) {
      const auto there = std::find_if(candidates->begin(), candidates->end(), has);
      names.push_back(there == candidates->end() ? std::string{} : *there);
    }
    return names;
  });
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i >= parameters) {
      names_of_buffers_.push_back(found[i].empty() ? "" : in_files(options_, found[i]));
    } else if (!found[i].empty()) {
      other_names_.emplace(asked[i]->front(), found[i]);
    }
  }
  values_.resize(buffers_.all().size());
  beside_weights_ = from_rank0(world_, [&] { return read_buffers(); });
}

std::vector<std::string> FoundInFiles::read_buffers() {
  std::vector<SafetensorsReader> readers = readers_of(path_);
  const auto& buffers = buffers_.all();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::string& name = names_of_buffers_[i];
    if (name.empty() || (options_.only && !options_.only(name))) { continue; }
    const auto reader = std::ranges::find_if(
        readers, [&](const SafetensorsReader& one) { return one.entries().contains(name); });
    if (reader != readers.end()) { values_[i] = values_for(buffers[i].tensor, *reader, name); }
  }
  std::vector<std::string> names;
  for (std::size_t i = 1; i < readers.size(); ++i) {
    for (const auto& [name, entry] : readers[i].entries()) { names.push_back(name); }
  }
  return names;
}

WeightName FoundInFiles::parameter_name() const {
  return [name = options_.name, others = other_names_](const ParameterInfo& info) {
    const auto other = others.find(ShardedModule::name_of(info));
    if (other == others.end() || other->second == other->first) { return name(info); }
    ParameterInfo alias = info;
    alias.unit = kRootUnit;
    alias.name = other->second;
    return name(alias);
  };
}

void FoundInFiles::load_buffers(LoadReport& report) {
  const at::NoGradGuard no_grad;
  const auto& buffers = buffers_.all();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (values_[i].defined()) { buffers[i].tensor.detach().copy_(values_[i]); }
  }
  buffers_.broadcast();
  report.unexpected.insert(report.unexpected.end(), beside_weights_.begin(), beside_weights_.end());

  std::set<std::string> expected;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (const std::string& name : buffers[i].names) { expected.insert(in_files(options_, name)); }
    const std::string first = in_files(options_, buffers[i].names.front());
    if (names_of_buffers_[i].empty() && (!options_.only || options_.only(first))) {
      report.missing.push_back(first);
    }
  }
  for (const ModuleUnit& unit : units_) {
    for (const ModuleParameter& parameter : unit.parameters) {
      for (const std::string& name : parameter.names) { expected.insert(in_files(options_, name)); }
    }
  }
  std::erase_if(report.unexpected,
                [&](const std::string& name) { return expected.contains(name); });
}

}  // namespace tessera::torch
