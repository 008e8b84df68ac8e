// Which blocks of k of which tiles each CTA of a persistent product multiplies (labs/matmul:tail).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/view.h"

namespace fathom::lab::matmul {

// Blocks [begin, end) of k of a tile.
struct Part {
  int tile, begin, end;
  int slot = 0;  // where its sums go
  // How many parts the tile has besides the one that begins at 0, the slot of the first of them, and the
  // number of slots from one to the next.
  int others = 0, first_slot = 0, slot_step = 0;
};

// Stream-K (Osama et al. 2023): the blocks of k of the first `cut` tiles are one line, which is cut into
// `pieces` of the same length, at most one for each CTA; the other tiles, a whole number of waves, stay
// whole. A CTA has its piece first and then its whole tiles, or, where `whole_first`, the other way round.
//
// If pieces come first: a piece may begin with the end of a tile. That tile's owner has an earlier piece and
// waits for the end, which is what this CTA does first. Pieces are dealt in reverse, so that an owner waits
// for a CTA with a lower number, which the GPU starts earlier. Where there are fewer tiles than CTAs a tile
// may have many parts.
struct StreamK {
  int tiles, blocks;  // of the product; of k
  int ctas, cut, pieces;
  bool whole_first = false;

  int slots() const { return pieces + cut; }
  FATHOM_HD int parts_of_piece(int cta) const {
    const int piece = piece_of_cta(cta);
    if (cut == 0 || piece >= pieces) return 0;
    return static_cast<int>((first_block(piece + 1) - 1) / blocks - first_block(piece) / blocks + 1);
  }
  FATHOM_HD int count(int cta) const { return parts_of_piece(cta) + (tiles - cut) / ctas; }
  FATHOM_HD Part part(int cta, int i) const {
    const int of_piece = parts_of_piece(cta), whole = (tiles - cut) / ctas;
    if (whole_first) i = i < whole ? i + of_piece : i - whole;
    if (i >= of_piece) return {.tile = cut + (i - of_piece) * ctas + cta, .begin = 0, .end = blocks};
    const int piece    = piece_of_cta(cta);
    const int64_t from = first_block(piece), to = first_block(piece + 1);
    const int tile          = static_cast<int>(from / blocks) + i;
    const int64_t tile_from = int64_t{tile} * blocks, tile_to = tile_from + blocks;
    const int first_piece = piece_of_block(tile_from);
    return {.tile       = tile,
            .begin      = static_cast<int>((from > tile_from ? from : tile_from) - tile_from),
            .end        = static_cast<int>((to < tile_to ? to : tile_to) - tile_from),
            .slot       = piece + tile,  // one of the two grows from each part of the line to the next
            .others     = piece_of_block(tile_to - 1) - first_piece,
            .first_slot = first_piece + 1 + tile,
            .slot_step  = 1};
  }

 private:
  FATHOM_HD int piece_of_cta(int cta) const { return ctas - 1 - cta; }
  FATHOM_HD int64_t first_block(int piece) const { return int64_t{piece} * cut * blocks / pieces; }
  FATHOM_HD int piece_of_block(int64_t block) const {
    return static_cast<int>(((block + 1) * pieces - 1) / (int64_t{cut} * blocks));
  }
};

// Into how many pieces `tiles` are cut at most: a piece has at least four blocks, or a tile where that has
// fewer.
inline int most_pieces(int tiles, int blocks, int multiprocessors) {
  constexpr int64_t kFewestBlocks = 4;
  const int64_t wanted            = std::max<int64_t>(tiles, int64_t{tiles} * blocks / kFewestBlocks);
  return static_cast<int>(std::min<int64_t>(wanted, multiprocessors));
}

// The last full wave and the broken one behind it are cut. With at least as many tiles as CTAs a piece is at
// least as long as a tile, and a tile has at most two parts.
inline StreamK two_tile_schedule(int tiles, int blocks, int multiprocessors) {
  const int ctas = most_pieces(tiles, blocks, multiprocessors), waves = tiles / ctas;
  const int cut = tiles % ctas == 0 ? 0 : tiles - std::max(0, waves - 1) * ctas;
  return {.tiles = tiles, .blocks = blocks, .ctas = ctas, .cut = cut, .pieces = ctas};
}

// Only the broken wave is cut, and its pieces come after all whole tiles. Its tiles get the same number of
// CTAs each, if that makes pieces hardly longer: then the CTAs of a row or a column of tiles are at the same
// block of k.
inline StreamK one_tile_schedule(int tiles, int blocks, int multiprocessors) {
  const int ctas = most_pieces(tiles, blocks, multiprocessors), cut = tiles % ctas;
  if (cut == 0) return {.tiles = tiles, .blocks = blocks, .ctas = ctas, .cut = 0, .pieces = ctas};
  const int most = most_pieces(cut, blocks, ctas), even = most / cut * cut;
  const auto longest = [&](int64_t pieces) { return (int64_t{cut} * blocks + pieces - 1) / pieces; };
  return {.tiles       = tiles,
          .blocks      = blocks,
          .ctas        = ctas,
          .cut         = cut,
          .pieces      = 10 * longest(even) <= 11 * longest(most) ? even : most,
          .whole_first = true};
}

}  // namespace fathom::lab::matmul
