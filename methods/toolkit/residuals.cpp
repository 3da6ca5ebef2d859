// Residual reweighting of ARFL for M = MODELS models: the operations of aggregation.py, in their
// order. A vector of columns stays in registers from the first operation to the last.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

namespace {

constexpr int M = MODELS, LANES = 16;
typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(LANES * sizeof(int32_t))));

// Batcher's merge-exchange network (Knuth, vol. 3, 5.2.2 M). The compiler removes comparators whose
// outputs are not used.
template <int SIZE>
struct Network {
  static constexpr int CAPACITY = SIZE * SIZE / 2 + 1;
  int count = 0;
  std::array<std::pair<int, int>, CAPACITY> comparators{};

  constexpr Network() {
    int top = 1;
    while (2 * top < SIZE) top *= 2;
    for (int p = SIZE > 1 ? top : 0; p; p /= 2)
      for (int q = top, r = 0, d = p; d; d = q - p, q /= 2, r = p) {
        for (int i = 0; i < SIZE - d; i++)
          if ((i & p) == r) {
            comparators[count].first = i;
            comparators[count++].second = i + d;
          }
      }
  }
};

template <int SIZE>
constexpr Network<SIZE> NETWORK{};

template <int SIZE, size_t... K>
inline void sort(Vector* v, std::index_sequence<K...>) {
  const auto compare = [v](int low, int high) {
    const Vector a = v[low], b = v[high];
    v[low] = b < a ? b : a;
    v[high] = b > a ? b : a;
  };
  (compare(NETWORK<SIZE>.comparators[K].first, NETWORK<SIZE>.comparators[K].second), ...);
}

template <int SIZE>
inline void sort(Vector* values) {
  sort<SIZE>(values, std::make_index_sequence<NETWORK<SIZE>.count>());
}

// Median without the smallest values. Changes the order of the values.
template <int SIZE, int DROPPED = 0>
inline Vector median(Vector* values) {
  sort<SIZE>(values);
  constexpr int LOW = DROPPED + (SIZE - DROPPED - 1) / 2, HIGH = DROPPED + (SIZE - DROPPED) / 2;
  return LOW == HIGH ? values[LOW] : (values[LOW] + values[HIGH]) / 2;
}

inline Vector square_root(Vector vector) {
  float values[LANES];
  std::memcpy(values, &vector, sizeof values);
  for (float& value : values) value = std::sqrt(value);
  std::memcpy(&vector, values, sizeof values);
  return vector;
}

template <int A, size_t... K>
inline Vector median_slope(const Vector* sorted, std::index_sequence<K...>) {
  // The distance is a constant, so a division by 2, 4 or 8 becomes a product.
  Vector slopes[] = {(sorted[K < A ? A : K + 1] - sorted[K < A ? K : A]) /
                     float(K < A ? A - int(K) : int(K) + 1 - A)...};
  return median<M - 1>(slopes);
}

template <size_t... A>
inline Vector repeated_median_slope(const Vector* sorted, std::index_sequence<A...>) {
  Vector slopes[] = {median_slope<A>(sorted, std::make_index_sequence<M - 1>())...};
  return median<M>(slopes);
}

}  // namespace

// Matrices have M rows with a distance of `stride` values. `constants`: factor and offset of the
// scale, factor of the limit, factor of the leverage, delta. Columns from `first_buffer` on are at
// least the minimum of the models. Adds to the M scores.
extern "C" void reweight(const float* y, int64_t stride, int64_t columns, int64_t first_buffer,
                         const float* constants, float* corrected, double* scores) {
  const float center = (M - 1) / 2.0;
  for (int64_t first = 0; first < columns; first += LANES) {
    const int64_t count = std::min(columns - first, int64_t(LANES));
    Vector values[M], sorted[M], rank[M], line[M], residual[M], confidence[M];
    for (int m = 0; m < M; m++) {
      values[m] = Vector{};
      std::memcpy(&values[m], y + m * stride + first, count * sizeof(float));
      sorted[m] = values[m];
    }
    sort<M>(sorted);
    for (int a = 0; a < M; a++) {
      Integers below = {};
      for (int b = 0; b < M; b++)
        if (a != b) below -= b < a ? values[a] >= values[b] : values[a] > values[b];
      rank[a] = __builtin_convertvector(below, Vector);
    }
    const Vector slope = repeated_median_slope(sorted, std::make_index_sequence<M>());
    const Vector middle =
        M % 2 ? sorted[M / 2] : (sorted[M / 2 - (M + 1) % 2] + sorted[M / 2]) / 2;
    const Vector intercept = middle - slope * center;
    Vector ordered[M];
    for (int m = 0; m < M; m++) {
      line[m] = intercept + slope * rank[m];
      residual[m] = values[m] - line[m];
      residual[m] = residual[m] < 0 ? -residual[m] : residual[m];
      ordered[m] = residual[m];
    }
    const Vector scale = constants[0] * median<M, 1>(ordered) + constants[1];
    Vector mean = {}, variance = {};
    for (int m = 0; m < M; m++) {
      const Vector distance = rank[m] - center;
      const Vector leverage = float(1.0 / M) + distance * distance * constants[3];
      const Vector limit = constants[2] * scale * square_root(1 - leverage);
      confidence[m] = limit / (residual[m] > limit ? residual[m] : limit);
      mean += confidence[m];
    }
    mean /= float(M);
    for (int m = 0; m < M; m++) variance += (confidence[m] - mean) * (confidence[m] - mean);
    const Vector spread = square_root(variance / float(M - 1));
    for (int m = 0; m < M; m++) {
      Vector result = confidence[m] >= constants[4] ? values[m] : line[m];
      for (int64_t k = std::max(first_buffer - first, int64_t(0)); k < count; k++)
        result[k] = std::max(result[k], sorted[0][k]);
      std::memcpy(corrected + m * stride + first, &result, count * sizeof(float));
      const Vector product = confidence[m] * spread;
      for (int k = 0; k < count; k++) scores[m] += product[k];
    }
  }
}
