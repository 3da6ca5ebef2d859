// Convolution and 2x2 max-pooling for images with few channels, on one core.
//
// Libraries fill a vector register with channels. With 3, 6 or 16 channels, most lanes stay empty.
// Here, neighboring pixels fill the lanes.
//
// The output has the same row length as the padded input. The output pixel at p then depends on the
// inputs at p plus one fixed offset per filter tap, in every row, and a whole image is computed as
// one sequence of vectors. Values computed beyond the end of an output row are discarded (forward
// pass) or multiplied by zero (gradient).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

struct Convolution {
  int images, channels, height, width, filters, side, padding;
};

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16;
// Without this, the compiler reloads the vector for every product, across two cache lines.
#define KEEP_IN_REGISTER(vector) asm("" : "+v"(vector))
#else
constexpr int LANES = 8;
#ifdef __AVX__
#define KEEP_IN_REGISTER(vector) asm("" : "+x"(vector))
#else
#define KEEP_IN_REGISTER(vector)
#endif
#endif

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));

inline Vector load(const float* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline void store(float* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }

inline float sum(Vector vector) {
  float parts[LANES];
  store(parts, vector);
  for (int half = LANES / 2; half; half /= 2)
    for (int lane = 0; lane < half; lane++) parts[lane] += parts[lane + half];
  return parts[0];
}

int round_up(int count, int unit) { return (count + unit - 1) / unit * unit; }

void copy_rows(const float* from, int from_stride, float* to, int to_stride, int rows, int width) {
  for (int row = 0; row < rows; row++)
    std::memcpy(to + row * to_stride, from + row * from_stride, width * sizeof(float));
}

// Thread-local scratch buffer, reused between calls to avoid the cost of allocation.
float* scratch(int number, size_t count) {
  thread_local std::vector<float> memory[3];
  if (memory[number].size() < count) memory[number].resize(count);
  return memory[number].data();
}

struct Layout : Convolution {
  int stride, plane, out_height, out_width;
  int run;  // distance from the first to the last pixel of an output plane, with `stride` per row

  explicit Layout(const Convolution& shape) : Convolution(shape) {
    stride = width + padding;  // a row's left margin is the right margin of the row above
    plane = (height + 2 * padding) * stride;
    out_height = height + 2 * padding - side + 1;
    out_width = width + 2 * padding - side + 1;
    run = (out_height - 1) * stride + out_width;
  }

  // Padded images, followed by zeros that the last vectors read.
  const float* padded(const float* from, int count) const {
    const size_t size = size_t(count) * channels * plane, tail = side + 2 * LANES;
    float* result = scratch(0, size + tail);
    std::fill(padding ? result : result + size, result + size + tail, 0.0f);
    if (padding == 0) {
      std::memcpy(result, from, size * sizeof(float));
      return result;
    }
    for (int k = 0; k < count * channels; k++)
      copy_rows(from + k * height * width, width, result + k * plane + padding * (stride + 1),
                stride, height, width);
    return result;
  }
};

// For BLOCK filters and WIDTH vectors of output pixels, starting at p:
// out[b][p] = bias[b] + sum over taps of weights[tap][b] * image[p + offsets[tap]]
template <int BLOCK, int WIDTH>
void correlate(const float* image, const int* offsets, const int* end, const float* weights,
               const float* bias, float* out, int out_stride, int p) {
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

template <int BLOCK>
void convolve_by_blocks(const float* images, const float* weights, const float* bias, float* out,
                        const Layout& s, bool backward) {
  const int square = s.side * s.side, count = s.channels * square;
  const int filters = round_up(s.filters, BLOCK), length = round_up(s.run, 2 * LANES);
  std::vector<int> offsets;  // from an output pixel to the input pixel of a tap, by filter row
  std::vector<float> biases(filters);
  std::vector<float> ordered(size_t(filters) * count);  // weights by block, tap, filter of block
  if (bias) std::copy(bias, bias + s.filters, biases.begin());
  for (int i = 0; i < s.side; i++)
    for (int c = 0; c < s.channels; c++)
      for (int j = 0; j < s.side; j++) {
        for (int f = 0; f < s.filters; f++) {
          const int at = i * s.side + j;
          const int from = backward ? (c * s.filters + f + 1) * square - 1 - at
                                    : (f * s.channels + c) * square + at;
          ordered[(f / BLOCK * count + offsets.size()) * BLOCK + f % BLOCK] = weights[from];
        }
        offsets.push_back(c * s.plane + i * s.stride + j);
      }
  float* result = scratch(1, BLOCK * length);
  for (int n = 0; n < s.images; n++, images += s.channels * s.height * s.width) {
    const float* image = s.padded(images, 1);
    for (int first = 0; first < s.filters; first += BLOCK) {
      for (int p = 0; p < s.run; p += 2 * LANES) {
        // Skip filter rows that overlap with the padding only.
        const int from_row = std::max(0, s.padding - (p + 2 * LANES - 1) / s.stride);
        const int to_row = std::min(s.side, s.padding + s.height - p / s.stride);
        const int per_row = s.channels * s.side;
        const int* begin = offsets.data() + from_row * per_row;
        const int* end = offsets.data() + to_row * per_row;
        const float* w = &ordered[first * count + from_row * per_row * BLOCK];
        (p + LANES < s.run ? correlate<BLOCK, 2> : correlate<BLOCK, 1>)(
            image, begin, end, w, &biases[first], result, length, p);
      }
      for (int f = first; f < std::min(s.filters, first + BLOCK); f++) {
        copy_rows(result + (f - first) * length, s.stride, out, s.out_width, s.out_height,
                  s.out_width);
        out += s.out_height * s.out_width;
      }
    }
  }
}

// out[b][tap] = sum over images and p of gradient[b][p] * pixels[offsets[tap] + p]
template <int BLOCK, int TAPS>
void multiply(const float* gradient, int stride, int per_image, const float* pixels,
              int pixels_per_image, const int* offsets, float* out, int out_stride,
              const Layout& s) {
  Vector sums[BLOCK][TAPS] = {};
  for (int n = 0; n < s.images; n++, gradient += per_image, pixels += pixels_per_image)
    for (int p = 0; p < s.run; p += LANES) {
      Vector shifted[TAPS];
      for (int tap = 0; tap < TAPS; tap++) {
        shifted[tap] = load(pixels + offsets[tap] + p);
        KEEP_IN_REGISTER(shifted[tap]);
      }
      for (int b = 0; b < BLOCK; b++) {
        const Vector row = load(gradient + b * stride + p);
        for (int tap = 0; tap < TAPS; tap++) sums[b][tap] += row * shifted[tap];
      }
    }
  for (int b = 0; b < BLOCK; b++)
    for (int tap = 0; tap < TAPS; tap++) out[b * out_stride + tap] = sum(sums[b][tap]);
}

}  // namespace

extern "C" {

// With `backward`, compute the gradient of the input from the gradient of the output. This is a
// convolution with rotated filters in the order [channel][filter], described by `shape`.
void convolve(const float* images, const float* weights, const float* bias, float* out,
              Convolution shape, int backward) {
  const Layout layout(shape);
  if (LANES == 16 && shape.filters % 8 == 0)  // the number of sums that fit into the registers
    convolve_by_blocks<8>(images, weights, bias, out, layout, backward);
  else if (shape.filters % 6 == 0)
    convolve_by_blocks<6>(images, weights, bias, out, layout, backward);
  else
    convolve_by_blocks<4>(images, weights, bias, out, layout, backward);
}

// Gradients of the weights and the bias from the gradient of the output.
void weight_gradient(const float* images, const float* gradient, float* weights_out,
                     float* bias_out, Convolution shape) {
  constexpr int BLOCK = 2, TAPS = 5;
  const Layout s(shape);
  const int square = s.side * s.side, taps = round_up(square, TAPS);
  const int filters = round_up(s.filters, BLOCK), length = round_up(s.run, LANES);
  const float* padded = s.padded(images, s.images);
  float* rows = scratch(1, size_t(s.images) * filters * length);
  std::fill(rows, rows + size_t(s.images) * filters * length, 0.0f);
  for (int n = 0; n < s.images; n++)
    for (int f = 0; f < s.filters; f++, gradient += s.out_height * s.out_width)
      copy_rows(gradient, s.out_width, rows + (n * filters + f) * length, s.stride, s.out_height,
                s.out_width);
  std::vector<int> offsets(taps);
  for (int tap = 0; tap < square; tap++) offsets[tap] = tap / s.side * s.stride + tap % s.side;
  float* sums = scratch(2, size_t(filters) * s.channels * taps);
  for (int f = 0; f < filters; f += BLOCK)
    for (int c = 0; c < s.channels; c++)
      for (int tap = 0; tap < taps; tap += TAPS)
        multiply<BLOCK, TAPS>(rows + f * length, length, filters * length, padded + c * s.plane,
                              s.channels * s.plane, &offsets[tap],
                              sums + (f * s.channels + c) * taps + tap, s.channels * taps, s);
  copy_rows(sums, taps, weights_out, square, s.filters * s.channels, square);
  for (int f = 0; f < s.filters; f++) {
    Vector total = {};
    for (int n = 0; n < s.images; n++)
      for (int p = 0; p < length; p += LANES) total += load(rows + (n * filters + f) * length + p);
    bias_out[f] = sum(total);
  }
}

// As in torch, the first of equal values is selected, and NaN has precedence. The maximum is
// computed at every pixel, although only one in four is needed, because vector code without
// unpredictable branches is faster.
void max_pool(const float* images, float* out, int64_t* indices, int planes, int height,
              int width) {
  const int plane = height * width, length = round_up(plane, LANES);
  const int distances[] = {1, width, width + 1};
  float* pixels = scratch(0, length + width + 1);
  float *best = scratch(1, length), *distance = scratch(2, length);
  for (int k = 0; k < planes; k++) {
    std::memcpy(pixels, images + k * plane, plane * sizeof(float));
    for (int p = 0; p < length; p += LANES) {
      Vector value = load(pixels + p), chosen = {};
      for (int candidate : distances) {
        const Vector other = load(pixels + p + candidate);
        const auto is_larger = (other > value) | (other != other);
        value = is_larger ? other : value;
        chosen = is_larger ? Vector{} + float(candidate) : chosen;
      }
      store(best + p, value);
      store(distance + p, chosen);
    }
    for (int y = 0; y + 1 < height; y += 2)
      for (int corner = y * width; corner + 1 < (y + 1) * width; corner += 2) {
        *out++ = best[corner];
        *indices++ = corner + int(distance[corner]);
      }
  }
}

void max_pool_gradient(const float* gradient, const int64_t* indices, float* out, int planes,
                       int in_plane, int out_plane) {
  std::fill(out, out + size_t(planes) * in_plane, 0.0f);
  for (int plane = 0; plane < planes; plane++, out += in_plane)
    for (int k = 0; k < out_plane; k++) out[*indices++] = *gradient++;
}

}
