#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/base/shape.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tessera/shard/parameter_info.hpp"

/// Models in the format of Hugging Face's hub: config.json and safetensors files.
namespace tessera::nn {

/// A model as its config.json describes it.
struct HubConfig {
  /// The field model_type: "gpt2", "llama", "mistral", "qwen2" or "qwen3".
  std::string family;
  /// Sizes and parts. `seq` is the number of positions that the file allows; a smaller one trains
  /// on shorter sequences.
  DecoderConfig decoder;
  /// The dtype that the file names for its weights, if it is fp32, bf16 or fp16.
  std::optional<DType> dtype = {};
  /// The fields that change neither weights nor logits, such as ids of tokens and probabilities of
  /// dropout, as the text of a JSON object. export_hub writes them again.
  std::string other_fields = "{}";

  friend bool operator==(const HubConfig&, const HubConfig&) = default;
};

/// Reads config.json in `folder`, and no other file. It takes the fields of transformers 4
/// (rope_theta, rope_scaling, torch_dtype) and 5 (rope_parameters, dtype, layer_types). A field
/// that is left out has the value that transformers gives it.
///
/// Errors:  FormatError with path and field for a missing or invalid file, another model_type, a
///          value that Decoder does not compute, a field that is unknown for the family, and heads
///          of more than 128 values.
/// Threads: any.
[[nodiscard]] HubConfig read_hub_config(const std::filesystem::path& folder);

/// Returns the config of a decoder that was not read from a file, in the first family that has all
/// of its parts. Throws ConfigError if no family has them.
[[nodiscard]] HubConfig hub_config(const DecoderConfig& decoder);

/// Returns the text of a config.json, to keep with other data. Throws ConfigError as export_hub.
[[nodiscard]] std::string hub_config_text(const HubConfig& config);
/// Reads such a text, or any config.json's. `where` says in errors where it was found. Throws as
/// read_hub_config.
[[nodiscard]] HubConfig hub_config_of_text(const std::string& text, const std::string& where);

/// One of the hub's tensors that make up a parameter: columns [first_column, first_column +
/// columns) of a matrix, or these elements of a vector.
struct HubPiece {
  std::string tensor;             ///< its name: "model.layers.0.self_attn.k_proj.weight"
  Shape shape;                    ///< its shape in the hub's file
  std::int64_t first_column = 0;  ///< the parameter's column that it begins at
  std::int64_t columns = 0;       ///< the number of columns
  /// Whether its row j is the parameter's column first_column + j, as in torch.nn.Linear.
  bool transposed = false;

  friend bool operator==(const HubPiece&, const HubPiece&) = default;
};

/// Returns the hub's tensors that make up `parameter` of a Decoder, in the order of its columns.
/// Throws ConfigError for an unknown family and a parameter that the family does not have.
[[nodiscard]] std::vector<HubPiece> hub_pieces(const HubConfig& config,
                                               const ParameterInfo& parameter);

/// Returns an initializer that reads the weights in `folder`, model.safetensors or the files of
/// model.safetensors.index.json, for a Decoder of `config.decoder`. Each call reads the elements
/// that it writes and transposes them. With learned positions and a smaller `seq` it reads the
/// first positions.
///
/// Names may lack the family's prefix ("model.", "transformer."). Buffers that older files have
/// (attn.bias, attn.masked_bias, rotary_emb.inv_freq), and lm_head.weight of a tied head, are
/// passed over.
///
/// Memory:  the headers, and at most 16 MiB during a call.
/// Errors:  FormatError at once, with file and tensor, unless the files have exactly the tensors of
///          `config` with their shapes, in F32, BF16 or F16. ConfigError for an unknown family.
/// Threads: any; ranks that are threads may share it, and then read one after the other.
[[nodiscard]] Initializer hub_weights(const std::filesystem::path& folder, const HubConfig& config);

/// How export_hub writes a model.
struct HubExportOptions {
  DType dtype = DType::fp32;                  ///< of all weights: fp32, bf16 or fp16
  std::uint64_t shard_bytes = 5'000'000'000;  ///< the most bytes of tensors in a file
};

/// Writes a model that transformers opens: config.json, generation_config.json and
/// model.safetensors, or several files and model.safetensors.index.json if the weights have more
/// than `shard_bytes`. A larger tensor has a file of its own.
///
/// `weights` writes any elements of a parameter of a Decoder, as hub_weights does.
/// `weights_from(folder, gpt2_weight_name)` reads them from a checkpoint or from a file of
/// save_weights. Values are rounded to nearest, ties to even.
///
/// The files are written to the folder PATH.partial beside `folder`, which gets its name when all
/// are complete. A call that fails removes it.
///
/// Memory:  one parameter in fp32, and at most 32 MiB.
/// Errors:  ConfigError for a folder that is not empty, a PATH.partial that exists, parts that the
///          family does not have, and a finite value beyond the range of `dtype`. Error if a file
///          cannot be written; what `weights` throws. ContractError for fp64 and shard_bytes 0.
/// Threads: any, for different folders.
void export_hub(const std::filesystem::path& folder, const HubConfig& config,
                const Initializer& weights, const HubExportOptions& options = {});

}  // namespace tessera::nn
