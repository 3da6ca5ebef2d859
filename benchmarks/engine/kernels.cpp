// Convolution and 2x2 max-pooling for images with few channels, on one core.
//
// Libraries fill a vector register with channels; a network of 3, 6 and 16 channels leaves most lanes empty. Here neighbouring pixels fill them.
// An image keeps its row length, margins included, from input to output: an output pixel at p then needs the inputs at p plus one fixed offset
// per tap of the filter, whatever row p lies in, and whole images are computed in runs of vectors. Where a run passes the end of an output row
// it computes pixels that do not exist; they are dropped (forward) or meet a zero (gradient).

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
#define KEEP_IN_REGISTER(vector) asm("" : "+v"(vector))  // else the compiler loads it anew, across two cache lines, for every product
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
  for (int row = 0; row < rows; row++) std::memcpy(to + row * to_stride, from + row * from_stride, width * sizeof(float));
}

// Memory that outlives the call: asking the system for it anew would take as long as the arithmetic.
float* scratch(int number, size_t count) {
  thread_local std::vector<float> memory[3];
  if (memory[number].size() < count) memory[number].resize(count);
  return memory[number].data();
}

struct Layout : Convolution {
  int stride, plane, out_height, out_width, run;  // `run`: from the first pixel of an output plane to its last, with `stride` per row

  explicit Layout(const Convolution& shape) : Convolution(shape) {
    stride = width + padding;  // a row's left margin is the right margin of the row above
    plane = (height + 2 * padding) * stride;
    out_height = height + 2 * padding - side + 1;
    out_width = width + 2 * padding - side + 1;
    run = (out_height - 1) * stride + out_width;
  }

  // Some images with their margins, and behind them zeros for the last vectors, which reach too far.
  const float* padded(const float* from, int count) const {
    const size_t size = size_t(count) * channels * plane, behind = side + 2 * LANES;
    float* result = scratch(0, size + behind);
    std::fill(padding ? result : result + size, result + size + behind, 0.0f);
    if (padding == 0) {
      std::memcpy(result, from, size * sizeof(float));
      return result;
    }
    for (int k = 0; k < count * channels; k++)
      copy_rows(from + k * height * width, width, result + k * plane + padding * (stride + 1), stride, height, width);
    return result;
  }
};

// BLOCK filters, WIDTH vectors of output pixels from p on: out[b][p] = bias[b] + sum over taps of weights[tap][b] * image[p + offsets[tap]]
template <int BLOCK, int WIDTH>
void correlate(const float* image, const int* offsets, const int* end, const float* weights, const float* bias, float* out, int out_stride, int p) {
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
void convolve_by_blocks(const float* images, const float* weights, const float* bias, float* out, const Layout& s, bool backwards) {
  const int square = s.side * s.side, count = s.channels * square, filters = round_up(s.filters, BLOCK), length = round_up(s.run, 2 * LANES);
  std::vector<int> offsets;  // from an output pixel to the input pixel that a tap of the filter meets, by row of the filter
  std::vector<float> biases(filters), ordered(size_t(filters) * count);  // weights by block, tap, filter of the block
  if (bias) std::copy(bias, bias + s.filters, biases.begin());
  for (int i = 0; i < s.side; i++)
    for (int c = 0; c < s.channels; c++)
      for (int j = 0; j < s.side; j++) {
        for (int f = 0; f < s.filters; f++) {
          const int at = i * s.side + j, from = backwards ? (c * s.filters + f + 1) * square - 1 - at : (f * s.channels + c) * square + at;
          ordered[(f / BLOCK * count + offsets.size()) * BLOCK + f % BLOCK] = weights[from];
        }
        offsets.push_back(c * s.plane + i * s.stride + j);
      }
  float* result = scratch(1, BLOCK * length);
  for (int n = 0; n < s.images; n++, images += s.channels * s.height * s.width) {
    const float* image = s.padded(images, 1);
    for (int first = 0; first < s.filters; first += BLOCK) {
      for (int p = 0; p < s.run; p += 2 * LANES) {
        // Rows of the filter that meet nothing but margin there are left out.
        const int from_row = std::max(0, s.padding - (p + 2 * LANES - 1) / s.stride), to_row = std::min(s.side, s.padding + s.height - p / s.stride);
        const int per_row = s.channels * s.side;
        const int *begin = offsets.data() + from_row * per_row, *end = offsets.data() + to_row * per_row;
        const float* w = &ordered[first * count + from_row * per_row * BLOCK];
        (p + LANES < s.run ? correlate<BLOCK, 2> : correlate<BLOCK, 1>)(image, begin, end, w, &biases[first], result, length, p);
      }
      for (int f = first; f < std::min(s.filters, first + BLOCK); f++, out += s.out_height * s.out_width)
        copy_rows(result + (f - first) * length, s.stride, out, s.out_width, s.out_height, s.out_width);
    }
  }
}

// out[b][tap] = sum over images and p of gradient[b][p] * pixels[offsets[tap] + p]
template <int BLOCK, int TAPS>
void multiply(const float* gradient, int stride, int per_image, const float* pixels, int pixels_per_image, const int* offsets, float* out, int out_stride, const Layout& s) {
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

// `backwards`: the gradient of the images from that of the outputs. It is a convolution too, with the filters turned round and read
// [channel][filter], so `shape` describes that one.
void convolve(const float* images, const float* weights, const float* bias, float* out, Convolution shape, int backwards) {
  const Layout layout(shape);
  if (LANES == 16 && shape.filters % 8 == 0)  // as many sums as fit into the registers
    convolve_by_blocks<8>(images, weights, bias, out, layout, backwards);
  else if (shape.filters % 6 == 0)
    convolve_by_blocks<6>(images, weights, bias, out, layout, backwards);
  else
    convolve_by_blocks<4>(images, weights, bias, out, layout, backwards);
}

// Gradients of weights and bias from that of the outputs.
void weight_gradient(const float* images, const float* gradient, float* weights_out, float* bias_out, Convolution shape) {
  constexpr int BLOCK = 2, TAPS = 5;
  const Layout s(shape);
  const int square = s.side * s.side, taps = round_up(square, TAPS), filters = round_up(s.filters, BLOCK), length = round_up(s.run, LANES);
  const float* padded = s.padded(images, s.images);
  float* rows = scratch(1, size_t(s.images) * filters * length);
  std::fill(rows, rows + size_t(s.images) * filters * length, 0.0f);
  for (int n = 0; n < s.images; n++)
    for (int f = 0; f < s.filters; f++, gradient += s.out_height * s.out_width)
      copy_rows(gradient, s.out_width, rows + (n * filters + f) * length, s.stride, s.out_height, s.out_width);
  std::vector<int> offsets(taps);
  for (int tap = 0; tap < square; tap++) offsets[tap] = tap / s.side * s.stride + tap % s.side;
  float* sums = scratch(2, size_t(filters) * s.channels * taps);
  for (int f = 0; f < filters; f += BLOCK)
    for (int c = 0; c < s.channels; c++)
      for (int tap = 0; tap < taps; tap += TAPS)
        multiply<BLOCK, TAPS>(rows + f * length, length, filters * length, padded + c * s.plane, s.channels * s.plane, &offsets[tap],
                              sums + (f * s.channels + c) * taps + tap, s.channels * taps, s);
  copy_rows(sums, taps, weights_out, square, s.filters * s.channels, square);
  for (int f = 0; f < s.filters; f++) {
    Vector total = {};
    for (int n = 0; n < s.images; n++)
      for (int p = 0; p < length; p += LANES) total += load(rows + (n * filters + f) * length + p);
    bias_out[f] = sum(total);
  }
}

// As torch: the first of equals wins, and NaN wins over all. Every pixel is compared with its neighbours, of which one in four is asked for:
// in vectors that is cheaper than to branch on who wins, which cannot be predicted.
void max_pool(const float* images, float* out, int64_t* where, int planes, int height, int width) {
  const int plane = height * width, length = round_up(plane, LANES), distances[] = {1, width, width + 1};
  float *pixels = scratch(0, length + width + 1), *best = scratch(1, length), *distance = scratch(2, length);
  for (int k = 0; k < planes; k++) {
    std::memcpy(pixels, images + k * plane, plane * sizeof(float));
    for (int p = 0; p < length; p += LANES) {
      Vector value = load(pixels + p), chosen = {};
      for (int candidate : distances) {
        const Vector rival = load(pixels + p + candidate);
        const auto wins = (rival > value) | (rival != rival);
        value = wins ? rival : value;
        chosen = wins ? Vector{} + float(candidate) : chosen;
      }
      store(best + p, value);
      store(distance + p, chosen);
    }
    for (int y = 0; y + 1 < height; y += 2)
      for (int corner = y * width; corner + 1 < (y + 1) * width; corner += 2) {
        *out++ = best[corner];
        *where++ = corner + int(distance[corner]);
      }
  }
}

void max_pool_gradient(const float* gradient, const int64_t* where, float* out, int planes, int in_plane, int out_plane) {
  std::fill(out, out + size_t(planes) * in_plane, 0.0f);
  for (int plane = 0; plane < planes; plane++, out += in_plane)
    for (int k = 0; k < out_plane; k++) out[*where++] = *gradient++;
}

}
