//! Images to columns: which pixels of a tensor a copy by im2col moves.
//!
//! A tensor of three to five dimensions is a batch of images: channels innermost, then W, H and D as far as present,
//! and the images outermost. The base of a convolution's filter moves over a box of each image, W fastest, then H, D
//! and the images; a copy takes, for each of a number of bases, the pixel at the offsets from it. The map's steps
//! (traversal strides) are the base's, and every row of the box begins at the lower corner. A pixel outside of its
//! image, or of an image that the batch lacks, is filled by loads and left alone by stores and reductions, as in tiles;
//! those two have no offsets.
//!
//! Sources: PTX ISA, im2col mode of tensors; limits of `cuTensorMapEncodeIm2col`; that the box reaches from the lower
//! corner to the image's last pixel plus the upper corner, both inclusive, follows Triton's tutorial on im2col, whose
//! code queries a chip (Hopper or later) for the numbers of the tests below. Where a map stores corners and counts is
//! not published, so [`Im2col`] supplies them; the other fields are read where a tiled map has them, which is not
//! published either. Left out: `im2col::w`, steps over images, pixels of no whole 16 bytes, and bases outside of the
//! box, which the manual forbids.

use super::fault::{R, not_modelled};
use super::tma::Map;

/// The im2col fields of a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Im2col {
    /// The box's first position in W, H and D (the driver's function lists them in reverse), counted from 0. Dimensions
    /// that a tensor lacks are ignored.
    #[doc(alias = "pixelBoxLowerCorner")]
    pub lower_corner: [i16; 3],
    /// The box's last position, counted from the image's last pixel.
    #[doc(alias = "pixelBoxUpperCorner")]
    pub upper_corner: [i16; 3],
    /// Elements of a pixel that a copy moves: 1 to 256.
    #[doc(alias = "channelsPerPixel")]
    pub channels_per_pixel: u16,
    /// Pixels that a copy moves: 1 to 1024.
    #[doc(alias = "pixelsPerColumn")]
    pub pixels_per_column: u16,
}

/// Bits of a corner and of an offset in tensors of three, four and five dimensions.
const BITS: [u32; 3] = [16, 8, 5];

/// How the base moves along one dimension of the box, and the offset of the pixels from it.
#[derive(Clone, Copy)]
struct Side {
    first: i64,
    last: i64,
    step: i64,
    offset: i64,
}

fn refuse<T>(what: String) -> R<T> {
    not_modelled(format!("im2col of {what}"))
}

/// The extents of the box; the offsets are packed in the low half of a word.
fn sides(map: &Map, spec: Im2col, offsets: u32) -> R<Vec<Side>> {
    let Some(count) = map.rank.checked_sub(2).filter(|n| (1..=3).contains(n)) else {
        return refuse(format!("a tensor of {} dimensions", map.rank));
    };
    if !(1..=256).contains(&spec.channels_per_pixel) || !(1..=1024).contains(&spec.pixels_per_column) {
        return refuse(format!("{} pixels of {} channels", spec.pixels_per_column, spec.channels_per_pixel));
    }
    if !map.row_bytes().is_multiple_of(16) {
        return refuse(format!("pixels of {} bytes", map.row_bytes()));
    }
    if map.steps[map.rank - 1] != 1 {
        return refuse("images with a step".to_owned());
    }
    let (bits, mut packed) = (BITS[count - 1], offsets & 0xffff); // PANIC: one to three
    let limit = 1i64 << (bits - 1);
    let mut all = Vec::new();
    for k in 0..count {
        let (lower, upper) = (i64::from(spec.lower_corner[k]), i64::from(spec.upper_corner[k]));
        let (size, step) = (map.sizes[k + 1].cast_signed(), map.steps[k + 1].cast_signed());
        let (last, offset) = (size - 1 + upper, i64::from(packed & ((1 << bits) - 1)));
        packed >>= bits;
        if [lower, upper].iter().any(|c| !(-limit..limit).contains(c)) || last < lower {
            return refuse(format!(
                "corners {lower} and {upper} of {size} pixels in a tensor of {} dimensions",
                map.rank
            ));
        }
        all.push(Side { first: lower, last, step, offset });
    }
    Ok(all)
}

/// The next position of the base in its image; none where the image ends: it is at the box's first position, of the
/// next image.
fn advance(base: &mut [i64], sides: &[Side]) -> Option<()> {
    for (place, side) in base.iter_mut().zip(sides) {
        *place += side.step;
        if *place <= side.last {
            return Some(());
        }
        *place = side.first;
    }
    None
}

/// Where the pixels of a copy begin in global memory, as far as they are inside the tensor. The map's rows are a
/// pixel's channels.
pub(super) fn pixels(map: &Map, spec: Im2col, at: [i32; 5], offsets: u32) -> R<Vec<Option<u64>>> {
    let sides = sides(map, spec, offsets)?;
    let (mut base, mut image) = (at.map(i64::from), i64::from(at[map.rank - 1]));
    let base = &mut base[1..=sides.len()];
    if base.iter().zip(&sides).any(|(place, side)| !(side.first..=side.last).contains(place)) {
        return refuse(format!("a base {base:?} outside of the box"));
    }
    let mut all = Vec::new();
    for _ in 0..spec.pixels_per_column {
        let places = base.iter().zip(&sides).map(|(place, side)| place + side.offset).chain([image]);
        let begin = places.zip(1..).try_fold(map.address, |begin, (place, k): (i64, usize)| {
            let place = u64::try_from(place).ok().filter(|place| *place < map.sizes[k])?;
            Some(begin.wrapping_add(place.wrapping_mul(map.strides[k])))
        });
        all.push(begin);
        if advance(base, &sides).is_none() {
            image += 1;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ptx::sass::tensor_map::{Dimension, Element, Swizzle, TensorMap};

    const PIXEL: u64 = 128;

    /// Images of 4 by 4 pixels of 32 words, at address 0.
    fn images(count: u64, steps: [u8; 3]) -> Map {
        let dimension = |size, stride_bytes, step| Dimension { size, stride_bytes, box_size: 1, step };
        let [w, h, n] = steps;
        let dimensions = vec![
            dimension(32, 4, 1),
            dimension(4, PIXEL, w),
            dimension(4, 4 * PIXEL, h),
            dimension(count, 16 * PIXEL, n),
        ];
        let (element, swizzle) = (Element::F32, Swizzle::None);
        let map = TensorMap { address: 0, element, swizzle, fills_nan: false, dimensions };
        Map::parse(&map.emit().unwrap()).unwrap().of_pixels(32)
    }

    fn with_corners(corners: i16) -> Im2col {
        let [lower_corner, upper_corner] = [[corners; 3]; 2];
        Im2col { lower_corner, upper_corner, channels_per_pixel: 32, pixels_per_column: 16 }
    }

    /// Pixels by their numbers from 1 on, 0 outside; from a base in W, H and N.
    fn numbers(map: &Map, corners: i16, [w, h, n]: [i32; 3], offsets: u32) -> Vec<u64> {
        let all = pixels(map, with_corners(corners), [0, w, h, n, 0], offsets).unwrap();
        all.into_iter().map(|begin| begin.map_or(0, |at| at / PIXEL + 1)).collect()
    }

    #[test]
    fn pixels_are_those_that_tritons_tutorial_expects_of_a_chip() {
        let (one, two) = (images(1, [1; 3]), images(2, [1; 3]));
        let all: Vec<u64> = (1..17).collect();
        assert_eq!(numbers(&one, 0, [0; 3], 0), all);
        assert_eq!(numbers(&one, -1, [-1, -1, 0], 0), [0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11]);
        assert_eq!(numbers(&one, -1, [-1, -1, 0], 1 << 8 | 1), all);
        assert_eq!(numbers(&two, 0, [3, 1, 0], 0), (8..24).collect::<Vec<u64>>());
        assert_eq!(numbers(&two, -1, [2, 1, 0], 0), [7, 0, 9, 10, 11, 0, 0, 0, 0, 0, 17, 18, 19, 0, 21, 22]);
    }

    #[test]
    fn rows_begin_at_the_corner_whatever_the_steps_and_images_end() {
        // By the manual: steps do not change how many pixels there are.
        let places = [1, 3, 9, 11, 17, 19, 25, 27, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(numbers(&images(2, [2, 2, 1]), 0, [0; 3], 0), places);
        // The first offset is that of W.
        assert_eq!(numbers(&images(1, [3, 1, 1]), 0, [3, 2, 0], 1)[..5], [0, 14, 0, 0, 0]);
    }

    #[test]
    fn what_the_manual_forbids_or_leaves_open_is_refused() {
        let refused = |map: &Map, spec: Im2col, at: [i32; 5]| pixels(map, spec, at, 0).unwrap_err().to_string();
        let map = images(2, [1; 3]);
        assert!(refused(&map, with_corners(-1), [0, 3, 0, 0, 0]).contains("base [3, 0] outside of the box"));
        assert!(refused(&map, with_corners(128), [0; 5]).contains("corners 128 and 128"));
        let empty = Im2col { lower_corner: [2; 3], ..with_corners(-2) };
        assert!(refused(&map, empty, [0; 5]).contains("corners 2 and -2 of 4 pixels"));
        let many = Im2col { pixels_per_column: 1025, ..with_corners(0) };
        assert!(refused(&map, many, [0; 5]).contains("1025 pixels of 32 channels"));
        assert!(refused(&map.of_pixels(3), with_corners(0), [0; 5]).contains("pixels of 12 bytes"));
        assert!(refused(&images(2, [1, 1, 2]), with_corners(0), [0; 5]).contains("images with a step"));
        let mut flat = map;
        flat.rank = 2;
        assert!(refused(&flat, with_corners(0), [0; 5]).contains("a tensor of 2 dimensions"));
    }
}
