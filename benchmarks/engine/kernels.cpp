// Forward and backward pass of a chain of small layers, on one core.
//
// Libraries fill a vector register with channels. With 3, 6 or 16 channels, most lanes stay empty.
// Here, neighboring pixels of a convolution, or inputs of a linear layer, fill the lanes.
//
// The output of a convolution has the same row length as its padded input. The output pixel at p
// then depends on the inputs at p plus one fixed offset per filter tap, in every row, and a whole
// image is computed as one sequence of vectors. Values computed beyond the end of an output row are
// discarded.
//
// After pooling and ReLU, few output pixels have a gradient. The backward pass visits only these.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

// A convolution with stride 1 and optional 2x2 max-pooling, or a linear layer; optional ReLU. A
// linear layer has `channels` inputs and `filters` outputs, and all other sizes are 1. `weight` and
// `bias` are positions in the vector of all weights; bias -1: none.
struct Layer {
  int64_t is_convolution, channels, height, width, filters, side, padding, pool, relu, weight, bias;
};

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif
constexpr int TAPS = 8;  // values of a filter row that are processed at once

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef float Taps __attribute__((vector_size(TAPS * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(LANES * sizeof(int32_t))));

template <typename V, typename T>
inline V load(const T* from) {
  V vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline Vector load(const float* from) { return load<Vector>(from); }

template <typename V, typename T>
inline void store(T* to, V vector) {
  std::memcpy(to, &vector, sizeof vector);
}

inline float sum(Vector vector) {
  float parts[LANES];
  store(parts, vector);
  for (int half = LANES / 2; half; half /= 2)
    for (int lane = 0; lane < half; lane++) parts[lane] += parts[lane + half];
  return parts[0];
}

size_t round_up(size_t count, size_t unit) { return (count + unit - 1) / unit * unit; }

void copy_rows(const float* from, size_t from_stride, float* to, size_t to_stride, size_t rows,
               size_t width) {
  for (size_t row = 0; row < rows; row++)
    std::memcpy(to + row * to_stride, from + row * from_stride, width * sizeof(float));
}

// Thread-local scratch buffers, reused between calls to avoid the cost of allocation.
enum Purpose { PADDED, RESULT, LEFT, RIGHT, GRADIENT, NEXT_GRADIENT, PURPOSES };

float* scratch(Purpose purpose, size_t count) {
  thread_local std::vector<float> memory[PURPOSES];
  if (memory[purpose].size() < count) memory[purpose].resize(count);
  return memory[purpose].data();
}

struct Convolution {
  size_t channels, height, width, filters, side, padding;
  size_t stride, plane, out_height, out_width;
  size_t run;  // distance from the first to the last pixel of an output plane, plus 1

  Convolution(size_t channels, size_t height, size_t width, size_t filters, size_t side,
              size_t padding)
      : channels(channels), height(height), width(width), filters(filters), side(side),
        padding(padding) {
    stride = width + padding;  // a row's left margin is the right margin of the row above
    plane = (height + 2 * padding) * stride;
    out_height = height + 2 * padding - side + 1;
    out_width = width + 2 * padding - side + 1;
    run = (out_height - 1) * stride + out_width;
  }

  // Padded images, followed by zeros that the last vectors read.
  float* padded(const float* images, size_t count) const {
    const size_t size = count * channels * plane, tail = side + 2 * LANES;
    float* result = scratch(PADDED, size + tail);
    std::fill(padding ? result : result + size, result + size + tail, 0.0f);
    for (size_t k = 0; k < count * channels; k++)
      copy_rows(images + k * height * width, width, result + k * plane + padding * (stride + 1),
                stride, height, width);
    return result;
  }
};

// For BLOCK filters and WIDTH vectors of output pixels, starting at p:
// out[b][p] = bias[b] + sum over taps of weights[tap][b] * image[p + offsets[tap]]
template <int BLOCK, int WIDTH>
void correlate(const float* image, const int* offsets, const int* end, const float* weights,
               const float* bias, float* out, size_t out_stride, size_t p) {
  Vector sums[BLOCK][WIDTH];
  for (int b = 0; b < BLOCK; b++)
    for (int v = 0; v < WIDTH; v++) sums[b][v] = Vector{} + bias[b];
  for (; offsets < end; offsets++, weights += BLOCK)
    for (int v = 0; v < WIDTH; v++) {
      const Vector pixels = load(image + *offsets + p + v * LANES);
      for (int b = 0; b < BLOCK; b++) sums[b][v] += weights[b] * pixels;
    }
  for (int b = 0; b < BLOCK; b++)
    for (int v = 0; v < WIDTH; v++) store(out + b * out_stride + p + v * LANES, sums[b][v]);
}

// Calls emit(image, filter, plane) for every output plane, with `stride` pixels per row.
template <int BLOCK, typename Emit>
void convolve_by_blocks(const Convolution& s, const float* images, size_t count,
                        const float* weights, const float* bias, Emit emit) {
  const size_t square = s.side * s.side, taps = s.channels * square;
  const size_t filters = round_up(s.filters, BLOCK);
  const size_t length = round_up(s.run, 2 * LANES);
  std::vector<int> offsets;  // from an output pixel to the input pixel of a tap, by filter row
  std::vector<float> biases(filters);
  std::vector<float> ordered(filters * taps);  // weights by block, tap, filter of block
  if (bias) std::copy(bias, bias + s.filters, biases.begin());
  for (size_t i = 0; i < s.side; i++)
    for (size_t c = 0; c < s.channels; c++)
      for (size_t j = 0; j < s.side; j++) {
        for (size_t f = 0; f < s.filters; f++)
          ordered[(f / BLOCK * taps + offsets.size()) * BLOCK + f % BLOCK] =
              weights[(f * s.channels + c) * square + i * s.side + j];
        offsets.push_back(c * s.plane + i * s.stride + j);
      }
  // Pooling reads two vectors from the last pixel on.
  float* result = scratch(RESULT, BLOCK * length + s.stride + 2 * LANES);
  const long per_row = s.channels * s.side, stride = s.stride, padding = s.padding;
  for (size_t n = 0; n < count; n++) {
    const float* image = s.padded(images + n * s.channels * s.height * s.width, 1);
    for (size_t first = 0; first < s.filters; first += BLOCK) {
      for (long p = 0; p < long(s.run); p += 2 * LANES) {
        // Skip filter rows that overlap with the padding only.
        const long from_row = std::max(0l, padding - (p + 2 * LANES - 1) / stride);
        const long to_row = std::min(long(s.side), padding + long(s.height) - p / stride);
        const float* w = &ordered[first * taps + from_row * per_row * BLOCK];
        (p + LANES < long(s.run) ? correlate<BLOCK, 2> : correlate<BLOCK, 1>)(
            image, offsets.data() + from_row * per_row, offsets.data() + to_row * per_row, w,
            &biases[first], result, length, p);
      }
      for (size_t f = first; f < std::min(s.filters, first + BLOCK); f++)
        emit(n, f, result + (f - first) * length);
    }
  }
}

template <typename Emit>
void convolve(const Convolution& s, const float* images, size_t count, const float* weights,
              const float* bias, Emit emit) {
  if (LANES == 16 && s.filters % 8 == 0)  // the number of sums that fit into the registers
    convolve_by_blocks<8>(s, images, count, weights, bias, emit);
  else if (s.filters % 6 == 0)
    convolve_by_blocks<6>(s, images, count, weights, bias, emit);
  else
    convolve_by_blocks<4>(s, images, count, weights, bias, emit);
}

// An output pixel with a gradient: its position in the padded input, its filter, the gradient.
struct Pixel {
  uint32_t position, filter;
  float gradient;
};

// Gradients of the output of a convolution: `size` values per output plane, of the output pixels at
// `where`, or of all pixels if it is null.
struct OutputGradient {
  const Convolution& s;
  const float* values;
  const int32_t* where;
  size_t size;

  // Append the pixels of one plane whose gradient is not zero. Returns their end.
  Pixel* pixels(size_t n, size_t f, size_t offset, Pixel* end) const {
    const size_t first = (n * s.filters + f) * size;
    for (size_t k = 0; k < size; k++) {
      const float value = values[first + k];
      const size_t p = where ? where[first + k] : k / s.out_width * s.stride + k % s.out_width;
      *end = {uint32_t(offset + p), uint32_t(f), value};
      end += value != 0;
    }
    return end;
  }
};

// For COUNT parts of filter rows: sum over pixels of gradient * input, at the taps of the part.
template <int COUNT>
void sum_over_pixels(const Pixel* pixels, const Pixel* end, const float* padded,
                     const size_t* offsets, float* out) {
  Taps totals[COUNT] = {};
  while (pixels < end) {  // Sums of sums have smaller rounding errors.
    Taps sums[COUNT] = {};
    for (const Pixel* stop = std::min(end, pixels + 256); pixels < stop; pixels++)
      for (int k = 0; k < COUNT; k++)
        sums[k] += pixels->gradient * load<Taps>(padded + pixels->position + offsets[k]);
    for (int k = 0; k < COUNT; k++) totals[k] += sums[k];
  }
  for (int k = 0; k < COUNT; k++) store(out + k * TAPS, totals[k]);
}

void weight_gradient(const OutputGradient& gradient, const float* x, size_t count,
                     float* weights_out, float* bias_out) {
  const Convolution& s = gradient.s;
  const size_t parts = (s.side + TAPS - 1) / TAPS, rows = s.channels * s.side;
  std::vector<size_t> offsets(rows * parts);  // of each part of a filter row in the padded input
  for (size_t k = 0; k < offsets.size(); k++)
    offsets[k] = k / parts / s.side * s.plane + k / parts % s.side * s.stride + k % parts * TAPS;
  const float* padded = s.padded(x, count);
  float* sums = scratch(RESULT, offsets.size() * TAPS);
  std::vector<Pixel> pixels(count * gradient.size + 1);
  for (size_t f = 0; f < s.filters; f++) {
    Pixel* end = pixels.data();
    for (size_t n = 0; n < count; n++)
      end = gradient.pixels(n, f, n * s.channels * s.plane, end);
    for (size_t k = 0, block; k < offsets.size(); k += block) {
      const size_t left = offsets.size() - k;
      block = left >= 12 ? 12 : left >= 3 ? 3 : 1;
      (block == 12 ? sum_over_pixels<12> : block == 3 ? sum_over_pixels<3> : sum_over_pixels<1>)(
          pixels.data(), end, padded, &offsets[k], sums + k * TAPS);
    }
    copy_rows(sums, parts * TAPS, weights_out + f * rows * s.side, s.side, rows, s.side);
    double total = 0;
    for (const Pixel* pixel = pixels.data(); pixel < end; pixel++) total += pixel->gradient;
    if (bias_out) bias_out[f] = total;
  }
}

// For COUNT channels and one vector of input pixels: sum over pixels of gradient * filter. `filters`
// points to the value of each filter at the first input pixel, for an output pixel at position 0.
template <int COUNT>
void sum_of_filters(const Pixel* pixels, const Pixel* end, const float* filters, size_t per_filter,
                    size_t per_channel, float* out, size_t out_stride) {
  Vector sums[COUNT] = {};
  for (; pixels < end; pixels++)
    for (int c = 0; c < COUNT; c++)
      sums[c] += pixels->gradient * load(filters + pixels->filter * per_filter + c * per_channel -
                                         pixels->position);
  for (int c = 0; c < COUNT; c++) store(out + c * out_stride, sums[c]);
}

// Each filter is laid out as in the padded input, with zeros between its rows and on both sides. An
// output pixel adds its filter to the inputs from its position on. Input pixels are summed one
// vector at a time, so output pixels are sorted by the vector that they are in.
void input_gradient(const OutputGradient& gradient, size_t count, const float* weights,
                    float* x_out) {
  const Convolution& s = gradient.s;
  const size_t span = (s.side - 1) * s.stride + s.side, row = span + 3 * LANES;
  const size_t reach = (span + LANES - 1) / LANES, length = round_up(s.plane, LANES);
  const size_t chunks = length / LANES;
  float* filters = scratch(RIGHT, s.filters * s.channels * row);
  std::fill(filters, filters + s.filters * s.channels * row, 0.0f);
  for (size_t k = 0; k < s.filters * s.channels; k++)
    copy_rows(weights + k * s.side * s.side, s.side, filters + k * row + LANES, s.stride, s.side,
              s.side);
  float* sums = scratch(RESULT, s.channels * length);
  std::vector<Pixel> pixels(s.filters * gradient.size + 1), sorted(pixels.size());
  for (size_t n = 0; n < count; n++) {
    Pixel* end = pixels.data();
    for (size_t f = 0; f < s.filters; f++) end = gradient.pixels(n, f, 0, end);
    std::vector<size_t> start(chunks + 2);  // after sorting: start[k + 1] is the end of chunk k
    for (const Pixel* pixel = pixels.data(); pixel < end; pixel++)
      start[pixel->position / LANES + 2]++;
    for (size_t k = 2; k < chunks + 2; k++) start[k] += start[k - 1];
    for (const Pixel* pixel = pixels.data(); pixel < end; pixel++)
      sorted[start[pixel->position / LANES + 1]++] = *pixel;
    for (size_t chunk = 0; chunk < chunks; chunk++) {
      const Pixel* first = &sorted[chunk < reach ? 0 : start[chunk - reach]];
      const Pixel* last = &sorted[start[chunk + 1]];
      for (size_t c = 0, block; c < s.channels; c += block) {
        const size_t left = s.channels - c;
        block = left >= 8 ? 8 : left >= 6 ? 6 : left >= 3 ? 3 : 1;
        (block == 8   ? sum_of_filters<8>
         : block == 6 ? sum_of_filters<6>
         : block == 3 ? sum_of_filters<3>
                      : sum_of_filters<1>)(first, last, filters + c * row + (chunk + 1) * LANES,
                                           s.channels * row, row,
                                           sums + c * length + chunk * LANES, length);
      }
    }
    for (size_t c = 0; c < s.channels; c++, x_out += s.height * s.width)
      copy_rows(sums + c * length + s.padding * (s.stride + 1), s.stride, x_out, s.width, s.height,
                s.width);
  }
}

inline Vector relu_of(Vector value) { return value <= 0 ? Vector{} : value; }

// 2x2 max-pooling of a plane, and the position of each maximum. As in torch, the first of equal
// values is selected, and NaN has precedence. Writes up to LANES - 1 values too many.
void max_pool(const float* plane, size_t stride, size_t height, size_t width, bool relu, float* out,
              int32_t* where) {
  Integers even, lane;
  for (int k = 0; k < LANES; k++) even[k] = 2 * k, lane[k] = 2 * k;
  const Integers odd = even + 1;
  for (size_t y = 0; y + 1 < height; y += 2)
    for (size_t x = 0; x < width / 2; x += LANES) {
      const float* corner = plane + y * stride + 2 * x;
      Vector value = {};
      Integers chosen = {};
      for (int row = 0; row < 2; row++) {
        const Vector left = load(corner + row * stride), right = load(corner + row * stride + LANES);
        for (int column = 0; column < 2; column++) {
          const Vector other = __builtin_shuffle(left, right, column ? odd : even);
          const int32_t distance = row * stride + column;
          const Integers is_larger = (other > value) | (other != other);
          value = row + column == 0 ? other : (is_larger ? other : value);
          chosen = row + column == 0 ? chosen : (is_larger ? Integers{} + distance : chosen);
        }
      }
      const size_t count = std::min(width / 2 - x, size_t(LANES));
      store(out, relu ? relu_of(value) : value);
      store(where, chosen + lane + int32_t(corner - plane));
      out += count;
      where += count;
    }
}

// Rows followed by zeros up to a multiple of LANES.
const float* padded_rows(Purpose purpose, const float* from, size_t rows, size_t width) {
  const size_t stride = round_up(width, LANES);
  if (stride == width) return from;
  float* result = scratch(purpose, rows * stride);
  for (size_t row = 0; row < rows; row++)
    std::fill(result + row * stride + width, result + (row + 1) * stride, 0.0f);
  copy_rows(from, width, result, stride, rows, width);
  return result;
}

// out[r][c] = sum over k of left[r][k] * right[c][k], for ROWS x COLUMNS values
template <int ROWS, int COLUMNS>
void dot(const float* left, const float* right, size_t length, float* out, size_t out_stride) {
  Vector sums[ROWS][COLUMNS] = {};
  for (size_t k = 0; k < length; k += LANES)
    for (int r = 0; r < ROWS; r++) {
      const Vector values = load(left + r * length + k);
      for (int c = 0; c < COLUMNS; c++) sums[r][c] += values * load(right + c * length + k);
    }
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) out[r * out_stride + c] = sum(sums[r][c]);
}

// out[r][k] = sum over m of left(r, m) * right[m][k] for ROWS rows and one or two vectors
template <int ROWS, int WIDTH>
void combine(const float* left, size_t row_stride, size_t stride, const float* right, size_t length,
             size_t count, float* out, size_t k) {
  Vector sums[ROWS][WIDTH] = {};
  for (size_t m = 0; m < count; m++)
    for (int v = 0; v < WIDTH; v++) {
      const Vector values = load(right + m * length + k + v * LANES);
      for (int r = 0; r < ROWS; r++) sums[r][v] += left[r * row_stride + m * stride] * values;
    }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < WIDTH; v++) store(out + r * length + k + v * LANES, sums[r][v]);
}

// (rows x count) times (count x width): out[r][k] = sum over m of left(r, m) * right[m][k]. The
// rows of `right` have `length` values, a multiple of LANES.
void product(const float* left, size_t row_stride, size_t stride, const float* right, size_t length,
             size_t rows, size_t count, float* out, size_t width) {
  float* padded = length == width ? out : scratch(RESULT, rows * length);
  for (size_t r = 0; r < rows;) {
    const size_t block = rows - r >= 4 ? 4 : 1;
    const float* first = left + r * row_stride;
    for (size_t k = 0; k < length; k += 2 * LANES) {
      const bool two = k + LANES < length;
      auto function = block == 4 ? (two ? combine<4, 2> : combine<4, 1>)
                                 : (two ? combine<1, 2> : combine<1, 1>);
      function(first, row_stride, stride, right, length, count, padded + r * length, k);
    }
    r += block;
  }
  if (padded != out) copy_rows(padded, length, out, width, rows, width);
}

void linear(const Layer& s, const float* x, size_t count, const float* weights, const float* bias,
            float* out) {
  const size_t inputs = s.channels, outputs = s.filters, length = round_up(inputs, LANES);
  const float* left = padded_rows(LEFT, x, count, inputs);
  const float* right = padded_rows(RIGHT, weights, outputs, inputs);
  for (size_t n = 0; n < count;) {
    const size_t block = count - n >= 5 ? 5 : 1;
    for (size_t o = 0; o < outputs;) {
      const size_t columns = outputs - o >= 4 ? 4 : 1;
      auto function =
          block == 5 ? (columns == 4 ? dot<5, 4> : dot<5, 1>) : (columns == 4 ? dot<1, 4> : dot<1, 1>);
      function(left + n * length, right + o * length, length, out + n * outputs + o, outputs);
      o += columns;
    }
    n += block;
  }
  for (size_t n = 0; n < count; n++)
    for (size_t o = 0; o < outputs; o++) {
      float& value = out[n * outputs + o];
      if (bias) value += bias[o];
      if (s.relu && value <= 0) value = 0;
    }
}

Convolution convolution_of(const Layer& s) {
  return Convolution(s.channels, s.height, s.width, s.filters, s.side, s.padding);
}

size_t output_size(const Layer& s) {
  if (!s.is_convolution) return s.filters;
  const Convolution c = convolution_of(s);
  const size_t part = s.pool ? 2 : 1;
  return c.filters * (c.out_height / part) * (c.out_width / part);
}

void convolution_layer(const Layer& s, const float* x, size_t count, const float* weights,
                       const float* bias, float* out, int32_t* where) {
  const Convolution c = convolution_of(s);
  const size_t size = output_size(s) / c.filters;
  convolve(c, x, count, weights, bias, [&](size_t n, size_t f, const float* plane) {
    float* to = out + (n * c.filters + f) * size;
    if (s.pool) {
      int32_t* positions = where + (n * c.filters + f) * size;
      max_pool(plane, c.stride, c.out_height, c.out_width, s.relu, to, positions);
      return;
    }
    copy_rows(plane, c.stride, to, c.out_width, c.out_height, c.out_width);
    for (size_t k = 0; s.relu && k < size; k++) to[k] = to[k] <= 0 ? 0 : to[k];
  });
}

void linear_gradient(const Layer& s, const float* x, size_t count, const float* weights,
                     const float* gradient, float* weights_out, float* bias_out, float* x_out) {
  const size_t inputs = s.channels, outputs = s.filters, length = round_up(inputs, LANES);
  const float* padded = padded_rows(LEFT, x, count, inputs);
  product(gradient, 1, outputs, padded, length, outputs, count, weights_out, inputs);
  if (bias_out) {
    std::fill(bias_out, bias_out + outputs, 0.0f);
    for (size_t n = 0; n < count; n++)
      for (size_t o = 0; o < outputs; o++) bias_out[o] += gradient[n * outputs + o];
  }
  if (!x_out) return;
  const float* right = padded_rows(RIGHT, weights, outputs, inputs);
  product(gradient, outputs, 1, right, length, count, outputs, x_out, inputs);
}

size_t input_size(const Layer& s) { return s.channels * s.height * s.width; }

const float* at(const float* vector, int64_t position) {
  return position < 0 ? nullptr : vector + position;
}

}  // namespace

extern "C" {

// `hidden` holds the outputs of all layers for all images, one layer after the other, followed by
// room for one vector; `where` the positions of maxima, in the same places. Returns 0, or 1 if
// memory is short.
int forward(const Layer* layers, int64_t num_layers, int64_t images, const float* weights,
            const float* x, float* hidden, int32_t* where, float* out) try {
  for (int64_t k = 0; k < num_layers; k++) {
    const Layer& s = layers[k];
    const size_t size = images * output_size(s);
    const float *w = weights + s.weight, *bias = at(weights, s.bias);
    if (s.is_convolution)
      convolution_layer(s, x, images, w, bias, hidden, where);
    else
      linear(s, x, images, w, bias, hidden);
    x = hidden;
    hidden += size;
    where += size;
  }
  std::memcpy(out, x, (hidden - x) * sizeof(float));
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

// `gradient` is the gradient of the output. Writes the gradients of all weights of the chain, and
// of x if `x_out` is not null.
int backward(const Layer* layers, int64_t num_layers, int64_t images, const float* weights,
             const float* x, const float* hidden, const int32_t* where, const float* gradient,
             float* weights_out, float* x_out) try {
  std::vector<size_t> start(num_layers + 1);
  for (int64_t k = 0; k < num_layers; k++)
    start[k + 1] = start[k] + images * output_size(layers[k]);
  for (int64_t k = num_layers - 1; k >= 0; k--) {
    const Layer& s = layers[k];
    const size_t size = start[k + 1] - start[k];
    if (s.relu) {
      float* masked = scratch(k % 2 ? GRADIENT : NEXT_GRADIENT, size);
      for (size_t i = 0; i < size; i++)
        masked[i] = hidden[start[k] + i] <= 0 ? 0.0f : gradient[i];
      gradient = masked;
    }
    const float* input = k ? hidden + start[k - 1] : x;
    float* input_out =
        k ? scratch((k - 1) % 2 ? GRADIENT : NEXT_GRADIENT, images * input_size(s)) : x_out;
    const float* w = weights + s.weight;
    float *w_out = weights_out + s.weight, *bias_out = s.bias < 0 ? nullptr : weights_out + s.bias;
    if (s.is_convolution) {
      const Convolution c = convolution_of(s);
      const OutputGradient output = {c, gradient, s.pool ? where + start[k] : nullptr,
                                     output_size(s) / c.filters};
      weight_gradient(output, input, images, w_out, bias_out);
      if (input_out) input_gradient(output, images, w, input_out);
    } else {
      linear_gradient(s, input, images, w, gradient, w_out, bias_out, input_out);
    }
    gradient = input_out;
  }
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

}
