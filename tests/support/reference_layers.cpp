#include <cmath>
#include <numbers>

#include "support/reference_gpt.hpp"

namespace tessera::reference {
namespace {

constexpr double kEps = 1e-5;

struct Standardised {
  Matrix values;        // (x - mean) / std
  Eigen::VectorXd std;  // by row
};

Standardised standardise(const Matrix& x) {
  Standardised result{x, Eigen::VectorXd(x.rows())};
  for (Eigen::Index r = 0; r < x.rows(); ++r) {
    const Eigen::RowVectorXd centred = x.row(r).array() - x.row(r).mean();
    const double variance = centred.squaredNorm() / static_cast<double>(x.cols());
    result.std(r) = std::sqrt(variance + kEps);
    result.values.row(r) = centred / result.std(r);
  }
  return result;
}

double gelu_inner(double x) {
  return std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

double gelu_slope(double x) {
  const double tanh = std::tanh(gelu_inner(x));
  const double inner_slope = std::sqrt(2.0 / std::numbers::pi) * (1.0 + 3.0 * 0.044715 * x * x);
  return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope;
}

// The softmax of one row, over its first `count` entries; the others are 0.
Eigen::RowVectorXd softmax(const Eigen::RowVectorXd& row, Eigen::Index count) {
  Eigen::RowVectorXd result = Eigen::RowVectorXd::Zero(row.size());
  const double most = row.head(count).maxCoeff();
  result.head(count) = (row.head(count).array() - most).exp();
  return result / result.sum();
}

Matrix causal_softmax(const Matrix& scores) {
  Matrix result(scores.rows(), scores.cols());
  for (Eigen::Index t = 0; t < scores.rows(); ++t) {
    result.row(t) = softmax(scores.row(t), t + 1);
  }
  return result;
}

// One head of one sequence.
struct Head {
  Matrix q, k, v;  // [seq, head size]
  double scale;
  Matrix weights;  // [seq, seq]
};

// Where a head's values begin: its rows, and its columns within q, k or v.
struct Place {
  Eigen::Index row;
  Eigen::Index column;
};

struct Cut {
  nn::BatchShape shape;
  Eigen::Index hidden;
  Eigen::Index size;  // head size

  template <class Work>
  void for_each_head(const Work& work) const {
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (Eigen::Index column = 0; column < hidden; column += size) {
        work(Place{b * shape.seq, column});
      }
    }
  }
  [[nodiscard]] Head head(const Matrix& qkv, Place at) const {
    const auto part = [&](Eigen::Index which) -> Matrix {
      return qkv.block(at.row, which * hidden + at.column, shape.seq, size);
    };
    Head head{part(0), part(1), part(2), 1.0 / std::sqrt(static_cast<double>(size)), {}};
    head.weights = causal_softmax(head.scale * head.q * head.k.transpose());
    return head;
  }
};

Cut cut_of(const Matrix& qkv, nn::BatchShape shape, std::int64_t heads) {
  return {shape, qkv.cols() / 3, qkv.cols() / 3 / heads};
}

}  // namespace

Matrix linear(const Matrix& x, const Matrix& weight, const Matrix& bias) {
  return (x * weight).rowwise() + bias.row(0);
}

LayerGradients linear_backward(const Matrix& x, const Matrix& weight, const Matrix& dy) {
  return {dy * weight.transpose(), x.transpose() * dy, dy.colwise().sum()};
}

Matrix layer_norm(const Matrix& x, const Matrix& weight, const Matrix& bias) {
  const Matrix scaled = standardise(x).values.array().rowwise() * weight.row(0).array();
  return scaled.rowwise() + bias.row(0);
}

LayerGradients layer_norm_backward(const Matrix& x, const Matrix& weight, const Matrix& dy) {
  const auto [z, std] = standardise(x);
  const Matrix dz = dy.array().rowwise() * weight.row(0).array();
  Matrix dx(x.rows(), x.cols());
  for (Eigen::Index r = 0; r < x.rows(); ++r) {
    const double mean = dz.row(r).mean();
    const double along = dz.row(r).dot(z.row(r)) / static_cast<double>(x.cols());
    dx.row(r) = (dz.row(r).array() - mean - along * z.row(r).array()) / std(r);
  }
  return {dx, dy.cwiseProduct(z).colwise().sum(), dy.colwise().sum()};
}

Matrix gelu(const Matrix& x, nn::MLPKind kind) {
  if (kind == nn::MLPKind::gelu) {
    return x.unaryExpr([](double v) { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); });
  }
  return x.unaryExpr([](double v) { return 0.5 * v * (1.0 + std::tanh(gelu_inner(v))); });
}

Matrix gelu_backward(const Matrix& x, const Matrix& dy, nn::MLPKind kind) {
  if (kind == nn::MLPKind::gelu) {
    return dy.cwiseProduct(x.unaryExpr([](double v) {
      const double density = std::exp(-0.5 * v * v) / std::sqrt(2 * std::numbers::pi);
      return 0.5 * std::erfc(-v / std::numbers::sqrt2) + v * density;
    }));
  }
  return dy.cwiseProduct(x.unaryExpr([](double v) { return gelu_slope(v); }));
}

Matrix attention(const Matrix& qkv, nn::BatchShape shape, std::int64_t heads) {
  const Cut cut = cut_of(qkv, shape, heads);
  Matrix y(qkv.rows(), cut.hidden);
  cut.for_each_head([&](Place at) {
    const Head head = cut.head(qkv, at);
    y.block(at.row, at.column, shape.seq, cut.size) = head.weights * head.v;
  });
  return y;
}

Matrix attention_backward(const Matrix& qkv, const Matrix& dy, nn::BatchShape shape,
                          std::int64_t heads) {
  const Cut cut = cut_of(qkv, shape, heads);
  Matrix dqkv(qkv.rows(), qkv.cols());
  cut.for_each_head([&](Place at) {
    const Head head = cut.head(qkv, at);
    const Matrix dout = dy.block(at.row, at.column, shape.seq, cut.size);
    const Matrix dweights = dout * head.v.transpose();
    Matrix dscores(shape.seq, shape.seq);
    for (Eigen::Index t = 0; t < shape.seq; ++t) {
      const double along = dweights.row(t).dot(head.weights.row(t));
      dscores.row(t) = head.weights.row(t).array() * (dweights.row(t).array() - along);
    }
    const auto part = [&](Eigen::Index which) {
      return dqkv.block(at.row, which * cut.hidden + at.column, shape.seq, cut.size);
    };
    part(0) = head.scale * dscores * head.k;
    part(1) = head.scale * dscores.transpose() * head.q;
    part(2) = head.weights.transpose() * dout;
  });
  return dqkv;
}

double cross_entropy(const Matrix& logits, Tokens targets) {
  double sum = 0.0;
  for (Eigen::Index r = 0; r < logits.rows(); ++r) {
    const double most = logits.row(r).maxCoeff();
    const double log_sum = most + std::log((logits.row(r).array() - most).exp().sum());
    sum += log_sum - logits(r, targets[static_cast<std::size_t>(r)]);
  }
  return sum / static_cast<double>(logits.rows());
}

Matrix cross_entropy_backward(const Matrix& logits, Tokens targets) {
  Matrix dlogits(logits.rows(), logits.cols());
  for (Eigen::Index r = 0; r < logits.rows(); ++r) {
    dlogits.row(r) = softmax(logits.row(r), logits.cols());
    dlogits(r, targets[static_cast<std::size_t>(r)]) -= 1.0;
  }
  return dlogits / static_cast<double>(logits.rows());
}

}  // namespace tessera::reference
