#include "support/reference_gpt.hpp"

#include <vector>

namespace tessera::reference {
namespace {

// The parameters "name.weight" and "name.bias".
struct Pair {
  const Matrix& weight;
  const Matrix& bias;
};

Pair pair_of(const Tensors& weights, const std::string& name) {
  return {weights.at(name + ".weight"), weights.at(name + ".bias")};
}

void add(Tensors& gradients, const std::string& name, const Matrix& gradient) {
  const auto [at, inserted] = gradients.try_emplace(name, gradient);
  if (!inserted) { at->second += gradient; }
}

// Adds the parameters' gradients and returns that of x.
Matrix keep(Tensors& gradients, const std::string& name, const LayerGradients& layer) {
  add(gradients, name + ".weight", layer.weight);
  add(gradients, name + ".bias", layer.bias);
  return layer.x;
}

Matrix apply_linear(const Tensors& weights, const std::string& name, const Matrix& x) {
  const Pair p = pair_of(weights, name);
  return linear(x, p.weight, p.bias);
}

Matrix apply_norm(const Tensors& weights, const std::string& name, const Matrix& x) {
  const Pair p = pair_of(weights, name);
  return layer_norm(x, p.weight, p.bias);
}

Matrix norm_backward(const Tensors& weights, const std::string& name, const Matrix& x,
                     const Matrix& dy, Tensors& gradients) {
  return keep(gradients, name, layer_norm_backward(x, pair_of(weights, name).weight, dy));
}

SubLayer within(const SubLayer& at, const std::string& name) {
  return {at.weights, at.prefix + name, at.shape, at.heads};
}

nn::BatchShape shape_of(const nn::DecoderConfig& config, Tokens inputs) {
  return {static_cast<std::int64_t>(inputs.size()) / config.seq, config.seq};
}

SubLayer layer(const nn::DecoderConfig& config, const Tensors& weights, Tokens inputs,
               std::int64_t index) {
  return {weights, "h." + std::to_string(index), shape_of(config, inputs), config.heads};
}

// The residual stream before each layer, and after the last.
std::vector<Matrix> residual_stream(const nn::DecoderConfig& config, const Tensors& weights,
                                    Tokens inputs) {
  Matrix x(static_cast<Eigen::Index>(inputs.size()), config.hidden);
  for (Eigen::Index r = 0; r < x.rows(); ++r) {
    x.row(r) = weights.at("wte.weight").row(inputs[static_cast<std::size_t>(r)]) +
               weights.at("wpe.weight").row(r % config.seq);
  }
  std::vector<Matrix> all{x};
  for (std::int64_t l = 0; l < config.layers; ++l) {
    all.push_back(block(layer(config, weights, inputs, l), all.back()));
  }
  return all;
}

}  // namespace

Matrix self_attention(const SubLayer& at, const Matrix& x) {
  const Matrix qkv = apply_linear(at.weights, at.prefix + ".c_attn", x);
  return apply_linear(at.weights, at.prefix + ".c_proj", attention(qkv, at.shape, at.heads));
}

Matrix self_attention_backward(const SubLayer& at, const Matrix& x, const Matrix& dy,
                               Tensors& gradients) {
  const std::string attn = at.prefix + ".c_attn";
  const std::string proj = at.prefix + ".c_proj";
  const Matrix qkv = apply_linear(at.weights, attn, x);
  const Matrix mixed = attention(qkv, at.shape, at.heads);
  const Matrix dmixed =
      keep(gradients, proj, linear_backward(mixed, pair_of(at.weights, proj).weight, dy));
  const Matrix dqkv = attention_backward(qkv, dmixed, at.shape, at.heads);
  return keep(gradients, attn, linear_backward(x, pair_of(at.weights, attn).weight, dqkv));
}

Matrix mlp(const SubLayer& at, const Matrix& x) {
  return apply_linear(at.weights, at.prefix + ".c_proj",
                      gelu(apply_linear(at.weights, at.prefix + ".c_fc", x), at.kind));
}

Matrix mlp_backward(const SubLayer& at, const Matrix& x, const Matrix& dy, Tensors& gradients) {
  const std::string fc = at.prefix + ".c_fc";
  const std::string proj = at.prefix + ".c_proj";
  const Matrix wide = apply_linear(at.weights, fc, x);
  const Matrix dactivated = keep(
      gradients, proj, linear_backward(gelu(wide, at.kind), pair_of(at.weights, proj).weight, dy));
  return keep(
      gradients, fc,
      linear_backward(x, pair_of(at.weights, fc).weight, gelu_backward(wide, dactivated, at.kind)));
}

Matrix block(const SubLayer& at, const Matrix& x) {
  const Matrix middle =
      x + self_attention(within(at, ".attn"), apply_norm(at.weights, at.prefix + ".ln_1", x));
  return middle + mlp(within(at, ".mlp"), apply_norm(at.weights, at.prefix + ".ln_2", middle));
}

Matrix block_backward(const SubLayer& at, const Matrix& x, const Matrix& dy, Tensors& gradients) {
  const std::string ln_1 = at.prefix + ".ln_1";
  const std::string ln_2 = at.prefix + ".ln_2";
  const Matrix normed_1 = apply_norm(at.weights, ln_1, x);
  const Matrix middle = x + self_attention(within(at, ".attn"), normed_1);
  const Matrix normed_2 = apply_norm(at.weights, ln_2, middle);

  const Matrix dnormed_2 = mlp_backward(within(at, ".mlp"), normed_2, dy, gradients);
  const Matrix dmiddle = dy + norm_backward(at.weights, ln_2, middle, dnormed_2, gradients);
  const Matrix dnormed_1 =
      self_attention_backward(within(at, ".attn"), normed_1, dmiddle, gradients);
  return dmiddle + norm_backward(at.weights, ln_1, x, dnormed_1, gradients);
}

Matrix gpt_logits(const nn::DecoderConfig& config, const Tensors& weights, Tokens inputs) {
  const Matrix last = residual_stream(config, weights, inputs).back();
  return apply_norm(weights, "ln_f", last) * weights.at("wte.weight").transpose();
}

double gpt_loss(const nn::DecoderConfig& config, const Tensors& weights, Tokens inputs,
                Tokens targets) {
  return cross_entropy(gpt_logits(config, weights, inputs), targets);
}

Tensors gpt_gradients(const nn::DecoderConfig& config, const Tensors& weights, Tokens inputs,
                      Tokens targets) {
  const Matrix& wte = weights.at("wte.weight");
  Tensors gradients = gpt_zeros(config);
  const std::vector<Matrix> stream = residual_stream(config, weights, inputs);
  const Matrix normed = apply_norm(weights, "ln_f", stream.back());
  const Matrix dlogits = cross_entropy_backward(normed * wte.transpose(), targets);
  add(gradients, "wte.weight", dlogits.transpose() * normed);

  Matrix dx = norm_backward(weights, "ln_f", stream.back(), dlogits * wte, gradients);
  for (std::int64_t l = config.layers - 1; l >= 0; --l) {
    dx = block_backward(layer(config, weights, inputs, l), stream[static_cast<std::size_t>(l)], dx,
                        gradients);
  }
  for (Eigen::Index r = 0; r < dx.rows(); ++r) {
    gradients.at("wte.weight").row(inputs[static_cast<std::size_t>(r)]) += dx.row(r);
    gradients.at("wpe.weight").row(r % config.seq) += dx.row(r);
  }
  return gradients;
}

Tensors gpt_zeros(const nn::DecoderConfig& config) {
  const std::int64_t h = config.hidden;
  const std::int64_t head = config.head_size();
  const std::int64_t wide = config.mlp_elems();
  Tensors all;
  const auto zeros = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    all.emplace(name, Matrix::Zero(rows, columns));
  };
  const auto linear = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                          bool bias) {
    zeros(name + ".weight", rows, columns);
    if (bias) { zeros(name + ".bias", 1, columns); }
  };
  const auto norm = [&](const std::string& name) {
    linear(name, 1, h, config.norm == nn::NormKind::layer_norm);
  };
  zeros("wte.weight", config.vocab, h);
  if (config.positions == nn::PositionKind::learned) { zeros("wpe.weight", config.seq, h); }
  norm("ln_f");
  if (!config.tied_head) { zeros("lm_head.weight", config.vocab, h); }
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const std::string prefix = "h." + std::to_string(l);
    norm(prefix + ".ln_1");
    linear(prefix + ".attn.c_attn", h, (config.heads + 2 * config.key_heads()) * head,
           config.qkv_bias);
    linear(prefix + ".attn.c_proj", config.heads * head, h, config.output_bias);
    for (const char* name : {".attn.q_norm", ".attn.k_norm"}) {
      if (config.head_norms) { linear(prefix + name, 1, head, false); }
    }
    norm(prefix + ".ln_2");
    linear(prefix + ".mlp.c_fc", h, (config.gated() ? 2 : 1) * wide, config.mlp_bias);
    linear(prefix + ".mlp.c_proj", wide, h, config.mlp_bias);
  }
  return all;
}

}  // namespace tessera::reference
