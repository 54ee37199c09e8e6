#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "kernels/matmul/product_choices.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::kernels {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kVersionKey = "tessera_products";
constexpr int kVersion = 1;
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostCount = 1 << 20;
constexpr std::size_t kHexDigits = 16;

constexpr std::array<std::pair<Epilogue, const char*>, 3> kEpilogues{
    {{Epilogue::none, "none"},
     {Epilogue::gelu, "gelu"},
     {Epilogue::gelu_gradient, "gelu_gradient"}}};

const char* name_of(Epilogue epilogue) {
  for (const auto& [value, name] : kEpilogues) {
    if (value == epilogue) { return name; }
  }
  return "?";
}

Json to_json(const ProductKind& kind, const ProductChoice& choice) {
  Json words = Json::array();
  for (const std::uint64_t word : choice.algorithm) {
    words.push_back(fmt::format("{:016x}", word));
  }
  return {{"m", kind.m},
          {"n", kind.n},
          {"k", kind.k},
          {"a_stride", kind.a_stride},
          {"c_stride", kind.c_stride},
          {"factors", to_string(kind.factors)},
          {"result", to_string(kind.result)},
          {"transpose_a", kind.transpose_a == Transpose::yes},
          {"transpose_b", kind.transpose_b == Transpose::yes},
          {"epilogue", name_of(kind.epilogue)},
          {"bias", kind.bias},
          {"bias_gradient", kind.bias_gradient},
          {"algorithm", std::move(words)},
          {"ms", choice.ms},
          {"first_ms", choice.first_ms}};
}

/// Reads values from a document, and reports the place of one with the wrong type.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_{path} {}

  [[noreturn]] void refuse(const std::string& reason) const {
    throw FormatError{fmt::format(
        "{}: it is no file of recorded products: {}; tessera_cuda_bench --choose writes one", path_,
        reason)};
  }

  [[nodiscard]] const Json& member(const Json& object, const char* key,
                                   const std::string& where) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) { refuse(fmt::format("{} has no '{}'", where, key)); }
    return *found;
  }
  [[nodiscard]] std::int64_t size(const Json& object, const char* key, const std::string& where,
                                  std::int64_t most = kMostSize) const {
    const Json& value = member(object, key, where);
    if (!value.is_number_integer() || value < 1 || value > most) {
      refuse(fmt::format("'{}' in {} is not a number from 1 to {}", key, where, most));
    }
    return value.get<std::int64_t>();
  }
  [[nodiscard]] double ms(const Json& object, const char* key, const std::string& where) const {
    const Json& value = member(object, key, where);
    if (!value.is_number()) { refuse(fmt::format("'{}' in {} is no number", key, where)); }
    return value.get<double>();
  }
  [[nodiscard]] bool truth(const Json& object, const char* key, const std::string& where) const {
    const Json& value = member(object, key, where);
    if (!value.is_boolean()) { refuse(fmt::format("'{}' in {} is not true or false", key, where)); }
    return value.get<bool>();
  }
  [[nodiscard]] std::string text(const Json& object, const char* key,
                                 const std::string& where) const {
    const Json& value = member(object, key, where);
    if (!value.is_string()) { refuse(fmt::format("'{}' in {} is no text", key, where)); }
    return value.get<std::string>();
  }
  [[nodiscard]] DType dtype(const Json& object, const char* key, const std::string& where) const {
    const std::string name = text(object, key, where);
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      if (name == to_string(dtype)) { return dtype; }
    }
    refuse(fmt::format("'{}' in {} is '{}'; use fp32, bf16 or fp16", key, where, shown(name)));
  }
  [[nodiscard]] Epilogue epilogue(const Json& object, const std::string& where) const {
    const std::string name = text(object, "epilogue", where);
    for (const auto& [value, known] : kEpilogues) {
      if (name == known) { return value; }
    }
    refuse(fmt::format("the epilogue of {} is '{}'; use none, gelu or gelu_gradient", where,
                       shown(name)));
  }
  [[nodiscard]] std::uint64_t word(const Json& value, const std::string& where) const {
    const std::string digits = value.is_string() ? value.get<std::string>() : "";
    if (digits.size() != kHexDigits ||
        digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse(fmt::format("a word of the algorithm of {} has not {} digits in base 16", where,
                         kHexDigits));
    }
    return std::stoull(digits, nullptr, 16);
  }
  [[nodiscard]] ProductAlgorithm algorithm(const Json& object, const std::string& where) const {
    const Json& words = member(object, "algorithm", where);
    ProductAlgorithm algorithm{};
    if (!words.is_array() || words.size() != algorithm.size()) {
      refuse(fmt::format("the algorithm of {} has not {} words", where, algorithm.size()));
    }
    for (std::size_t i = 0; i < algorithm.size(); ++i) { algorithm[i] = word(words[i], where); }
    return algorithm;
  }
  [[nodiscard]] ProductKind kind(const Json& object, const std::string& where) const {
    const auto transpose = [&](const char* key) {
      return truth(object, key, where) ? Transpose::yes : Transpose::no;
    };
    return {.m = size(object, "m", where),
            .n = size(object, "n", where),
            .k = size(object, "k", where),
            .a_stride = size(object, "a_stride", where),
            .c_stride = size(object, "c_stride", where),
            .factors = dtype(object, "factors", where),
            .result = dtype(object, "result", where),
            .transpose_a = transpose("transpose_a"),
            .transpose_b = transpose("transpose_b"),
            .epilogue = epilogue(object, where),
            .bias = truth(object, "bias", where),
            .bias_gradient = truth(object, "bias_gradient", where)};
  }

 private:
  const std::string& path_;
};

}  // namespace

std::string to_json(const ProductChoices& choices) {
  Json products = Json::array();
  for (const auto& [kind, choice] : choices.products) { products.push_back(to_json(kind, choice)); }
  const Json all{{kVersionKey, kVersion},
                 {"device", choices.machine.device},
                 {"cublaslt", choices.machine.cublaslt},
                 {"multiprocessors", choices.machine.multiprocessors},
                 {"products", std::move(products)}};
  return all.dump(1) + "\n";
}

ProductChoices parse_product_choices(const std::string& path, std::string_view text) {
  const Reader reader{path};
  const Json all = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (all.is_discarded()) { reader.refuse("it is not JSON"); }
  const std::string top = "the document";
  if (reader.member(all, kVersionKey, top) != kVersion) {
    reader.refuse(fmt::format("its version is not {}", kVersion));
  }
  ProductChoices choices;
  choices.machine = {reader.text(all, "device", top), reader.size(all, "cublaslt", top),
                     static_cast<int>(reader.size(all, "multiprocessors", top, kMostCount))};
  const Json& products = reader.member(all, "products", top);
  if (!products.is_array()) { reader.refuse("'products' is no list"); }
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::string where = fmt::format("product {}", i);
    const ProductChoice choice{.algorithm = reader.algorithm(products[i], where),
                               .ms = reader.ms(products[i], "ms", where),
                               .first_ms = reader.ms(products[i], "first_ms", where)};
    if (!choices.products.emplace(reader.kind(products[i], where), choice).second) {
      reader.refuse(fmt::format("{} is there twice", where));
    }
  }
  return choices;
}

}  // namespace tessera::kernels
