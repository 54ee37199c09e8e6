// One layer on several ranks: y = gelu(x A) B, with the columns of A and the rows of B divided over
// the ranks, by hand, with plain loops and the library's collectives. Prints what each rank holds,
// what a step sends forward and backward, measured and by formula, and how far the results are from
// those of one rank. Exit status 1 if a measured byte count differs from its formula, or if a
// result is too far off.
// docs/lessons/column_and_row.md
//
//   column_and_row [ranks = 4, from 1 to 8]

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "argument.hpp"
#include "tessera/tessera.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/peer_traffic.hpp"

namespace {

using tessera::Batch;
using tessera::Range;
using tessera::View;

constexpr std::int64_t kRows = 840;   // tokens; 1 to 8 ranks divide it
constexpr std::int64_t kHidden = 60;  // columns of x and y
constexpr std::int64_t kInner = 250;  // columns of A; divisible by few numbers of ranks

// A row-major matrix, with plain loops.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;

  Matrix(std::int64_t r, std::int64_t c)
      : rows{r}, columns{c}, values(static_cast<std::size_t>(r * c)) {}
  float& at(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
  [[nodiscard]] float at(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
  [[nodiscard]] View view(const Range& some) {
    return {&values[static_cast<std::size_t>(some.first * columns)], some.elems * columns};
  }
  [[nodiscard]] View view() { return view({0, rows}); }
};

Matrix transposed(const Matrix& m) {
  Matrix t{m.columns, m.rows};
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.columns; ++c) { t.at(c, r) = m.at(r, c); }
  }
  return t;
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix product{a.rows, b.columns};
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t c = 0; c < b.columns; ++c) { product.at(r, c) += a.at(r, k) * b.at(k, c); }
    }
  }
  return product;
}

// Copies some columns; rows_of copies some rows.
Matrix columns_of(const Matrix& m, const Range& some) {
  Matrix part{m.rows, some.elems};
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < some.elems; ++c) { part.at(r, c) = m.at(r, some.first + c); }
  }
  return part;
}
Matrix rows_of(const Matrix& m, const Range& some) {
  return transposed(columns_of(transposed(m), some));
}

// Any smooth nonlinearity will do; this is the sigmoid approximation of GELU.
Matrix bent(Matrix z) {
  for (float& v : z.values) { v = v / (1.0F + std::exp(-1.702F * v)); }
  return z;
}
Matrix times_slope(Matrix dh, const Matrix& z) {
  for (std::size_t i = 0; i < dh.values.size(); ++i) {
    const float s = 1.0F / (1.0F + std::exp(-1.702F * z.values[i]));
    dh.values[i] *= s + 1.702F * z.values[i] * s * (1.0F - s);
  }
  return dh;
}

Matrix drawn(std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
  Matrix m{rows, columns};
  std::uint32_t state = seed;
  for (float& v : m.values) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8U) * 0x1p-23F - 1.0F;
  }
  return m;
}

// The weights and inputs of every rank, and the result of one rank.
struct Whole {
  Matrix x = drawn(kRows, kHidden, 1), a = drawn(kHidden, kInner, 2), b = drawn(kInner, kHidden, 3);
  Matrix dy = drawn(kRows, kHidden, 4);
  Matrix z = x * a, h = bent(z), y = h * b;
  Matrix dz = times_slope(dy * transposed(b), z);
  Matrix dx = dz * transposed(a), da = transposed(x) * dz, db = transposed(h) * dy;
};

// The ranks that share the layer, and the record of what they send.
class Ranks {
 public:
  explicit Ranks(tessera::World& world)
      : world_{world},
        mesh_{world, {{"tensor", world.size()}}},
        channel_{mesh_.along("tensor").beside("activations")},
        inner_{part_of(kInner, world.rank())} {}

  [[nodiscard]] int size() const { return world_.size(); }
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] Range part_of(std::int64_t extent, int rank) const {
    const tessera::TensorPart part{{extent}, {}, {rank, size()}};
    return {part.first_index(), part.elems()};
  }
  [[nodiscard]] Range inner() const { return inner_; }
  [[nodiscard]] Range rows() const { return part_of(kRows, rank()); }

  void all_reduce(const char* what, Matrix& m) { move(what, Batch{what}.all_reduce(m.view())); }
  void all_gather_rows(const char* what, Matrix& m) {
    move(what, Batch{what}.all_gather(m.view(rows()), m.view()));
  }
  void reduce_scatter_rows(const char* what, Matrix& m) {
    move(what, Batch{what}.reduce_scatter(m.view(), m.view(rows())));
  }
  // Gathers every rank's columns with one broadcast per rank, since parts differ in size.
  Matrix gather_columns(const char* what, const Matrix& mine, std::int64_t columns) {
    Matrix all{columns, mine.rows};  // transposed: a rank's columns are contiguous
    const Matrix rows = transposed(mine);
    Batch batch{what};
    for (int rank = 0; rank < size(); ++rank) {
      const Range part = part_of(columns, rank);
      if (part.elems == 0) { continue; }
      const View view = all.view(part);
      if (rank == this->rank()) { std::ranges::copy(rows.values, static_cast<float*>(view.data)); }
      batch.broadcast(view, rank);
    }
    move(what, std::move(batch));
    return transposed(all);
  }

  struct Move {
    std::string what;
    std::string collective;
    std::size_t measured;    // bytes that all ranks sent
    std::size_t by_formula;  // sent_bytes of the Batch
  };
  [[nodiscard]] std::vector<Move> take_moves() { return std::exchange(moves_, {}); }

 private:
  void move(const char* what, Batch batch) {
    Move made{what, std::string{tessera::name_of(batch.ops().front())}, sent(), 0};
    for (const tessera::CommOp& op : batch.ops()) {
      for (int rank = 0; rank < size(); ++rank) {
        made.by_formula += tessera::sent_bytes(op, rank, size());
      }
    }
    channel_.communicator.submit(std::move(batch), channel_.stream);
    channel_.stream.wait();
    made.measured = sent() - made.measured;
    moves_.push_back(made);
  }
  // Bytes that all ranks have sent so far.
  std::size_t sent() {
    world_.barrier();
    const std::vector<std::size_t> mine = tessera::peer_traffic(world_);
    return static_cast<std::size_t>(
        world_.sum(static_cast<double>(std::accumulate(mine.begin(), mine.end(), std::size_t{0}))));
  }

  tessera::World& world_;
  tessera::Mesh mesh_;
  tessera::Channel channel_;
  Range inner_;
  std::vector<Move> moves_;
};

// The largest difference over all four results, relative to the largest value.
class Difference {
 public:
  void add(const Matrix& actual, const Matrix& expected) {
    float apart = 0, largest = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      apart = std::max(apart, std::abs(actual.values[i] - expected.values[i]));
      largest = std::max(largest, std::abs(expected.values[i]));
    }
    most_ = std::max(most_, apart / largest);
  }
  [[nodiscard]] float most() const { return most_; }

 private:
  float most_ = 0;
};

// Columns of A, rows of B. The nonlinearity needs complete sums of x A, and a rank has them for its
// columns; its columns of h multiply its rows of B. So nothing is sent between the two products.
float column_then_row(Ranks& ranks, const Whole& whole) {
  const Matrix a = columns_of(whole.a, ranks.inner());
  const Matrix b = rows_of(whole.b, ranks.inner());
  const Matrix z = whole.x * a;
  const Matrix h = bent(z);
  Matrix y = h * b;
  ranks.all_reduce("y", y);
  const Matrix dz = times_slope(whole.dy * transposed(b), z);
  Matrix dx = dz * transposed(a);
  ranks.all_reduce("dx", dx);
  Difference difference;
  difference.add(y, whole.y);
  difference.add(dx, whole.dx);
  difference.add(transposed(whole.x) * dz, columns_of(whole.da, ranks.inner()));
  difference.add(transposed(h) * whole.dy, rows_of(whole.db, ranks.inner()));
  return difference.most();
}

// The same with rows divided outside the layer: a rank starts with its rows of x and dy, and ends
// with its rows of y and dx.
float with_slices_of_rows(Ranks& ranks, const Whole& whole) {
  const Range mine = ranks.rows();
  const auto only_mine = [&](const Matrix& m) {
    Matrix part{m.rows, m.columns};
    const auto from = m.values.begin() + mine.first * m.columns;
    std::copy_n(from, mine.elems * m.columns, part.values.begin() + mine.first * m.columns);
    return part;
  };
  const Matrix a = columns_of(whole.a, ranks.inner());
  const Matrix b = rows_of(whole.b, ranks.inner());
  Matrix x = only_mine(whole.x);
  ranks.all_gather_rows("x", x);
  const Matrix z = x * a;
  const Matrix h = bent(z);
  Matrix y = h * b;
  ranks.reduce_scatter_rows("y", y);
  Matrix dy = only_mine(whole.dy);
  ranks.all_gather_rows("dy", dy);
  const Matrix dz = times_slope(dy * transposed(b), z);
  Matrix dx = dz * transposed(a);
  ranks.reduce_scatter_rows("dx", dx);
  Difference difference;
  difference.add(rows_of(y, mine), rows_of(whole.y, mine));
  difference.add(rows_of(dx, mine), rows_of(whole.dx, mine));
  difference.add(transposed(x) * dz, columns_of(whole.da, ranks.inner()));
  difference.add(transposed(h) * dy, rows_of(whole.db, ranks.inner()));
  return difference.most();
}

// Columns of both: h must be whole before B, and dh before the nonlinearity's slope.
float column_then_column(Ranks& ranks, const Whole& whole) {
  const Range out = ranks.part_of(kHidden, ranks.rank());
  const Matrix a = columns_of(whole.a, ranks.inner());
  const Matrix b = columns_of(whole.b, out);
  const Matrix z = whole.x * a;
  const Matrix h = ranks.gather_columns("h", bent(z), kInner);
  const Matrix y = ranks.gather_columns("y", h * b, kHidden);
  const Matrix dy = columns_of(whole.dy, out);
  Matrix dh = dy * transposed(b);
  ranks.all_reduce("dh", dh);
  const Matrix dz = times_slope(columns_of(dh, ranks.inner()), z);
  Matrix dx = dz * transposed(a);
  ranks.all_reduce("dx", dx);
  Difference difference;
  difference.add(y, whole.y);
  difference.add(dx, whole.dx);
  difference.add(transposed(whole.x) * dz, columns_of(whole.da, ranks.inner()));
  difference.add(transposed(h) * dy, columns_of(whole.db, out));
  return difference.most();
}

void print_holders(const Ranks& ranks) {
  std::printf("x [%lld, %lld], A [%lld, %lld], B [%lld, %lld] on %d ranks, fp32\n\n",
              static_cast<long long>(kRows), static_cast<long long>(kHidden),
              static_cast<long long>(kHidden), static_cast<long long>(kInner),
              static_cast<long long>(kInner), static_cast<long long>(kHidden), ranks.size());
  std::printf("rank  A by column   B by row     h = gelu(x A)  rows of x and y, if sliced\n");
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Range inner = ranks.part_of(kInner, rank);
    const Range rows = ranks.part_of(kRows, rank);
    const auto n = static_cast<long long>(inner.elems);
    std::printf("%4d  [%lld, %3lld]     [%3lld, %lld]    [%lld, %3lld]     %lld to %lld\n", rank,
                static_cast<long long>(kHidden), n, n, static_cast<long long>(kHidden),
                static_cast<long long>(kRows), n, static_cast<long long>(rows.first),
                static_cast<long long>(rows.end()) - 1);
  }
  std::printf("\n%-22s %-16s %-6s %12s %12s\n", "way", "collective", "of", "KiB sent", "formula");
}

// Prints one line per collective. Returns whether bytes match the formula and results match one
// rank's.
bool print(const char* way, const std::vector<Ranks::Move>& moves, double difference) {
  std::size_t all = 0;
  bool as_formula = true;
  const char* name = way;
  for (const Ranks::Move& move : moves) {
    std::printf("%-22s %-16s %-6s %12.1f %12.1f\n", std::exchange(name, ""),
                move.collective.c_str(), move.what.c_str(),
                static_cast<double>(move.measured) / 1024,
                static_cast<double>(move.by_formula) / 1024);
    all += move.measured;
    as_formula = as_formula && move.measured == move.by_formula;
  }
  std::printf("%-22s %-16s %-6s %12.1f  %s; %.1e from one rank\n\n", "", "together", "",
              static_cast<double>(all) / 1024, as_formula ? "as the formula" : "NOT the formula",
              difference);
  return as_formula && difference < 1e-5;
}

bool step(tessera::World& world) {
  const Whole whole;
  Ranks ranks{world};
  const bool prints = world.rank() == 0;
  if (prints) { print_holders(ranks); }
  bool good = true;
  const auto go = [&](const char* name, float (*way)(Ranks&, const Whole&)) {
    const auto mine = static_cast<double>(way(ranks, whole));
    double most = 0;
    for (const std::string& text : world.exchange(std::to_string(mine * 1e9))) {
      most = std::max(most, std::stod(text) / 1e9);
    }
    const std::vector<Ranks::Move> moves = ranks.take_moves();
    if (prints) { good = print(name, moves, most) && good; }
  };
  go("column, row", column_then_row);
  go("the same, rows sliced", with_slices_of_rows);
  go("column, column", column_then_column);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int ranks = only_argument(argc, argv, 1, 8, 4);
    bool good = true;
    const auto body = [&](tessera::World& world) {
      const bool mine = step(world);
      if (world.rank() == 0) { good = mine; }
    };
    tessera::WorldOptions options;
    options.trace = true;  // counts who sends to whom
    tessera::run_ranks(ranks, body, options);
    return good ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "column_and_row: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "column_and_row: %s\n", error.what());
    return 1;
  }
}
