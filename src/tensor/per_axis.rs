//! Options of sliding windows: one value for all axes that they slide over, or one for each.

use super::error::Problem;

/// Most axes that can have values of their own.
const MOST: usize = 8;

/// A value for each axis that windows slide over: one for all of them, or a list, first axis first. Options that take
/// it accept `2`, `[2, 1]`, a slice or a `Vec`; padding also `[(before, after), ..]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerAxis<T> {
    /// How many were listed; `None`: the first value stands for all.
    count: Option<usize>,
    values: [T; MOST],
}

impl<T: Copy> PerAxis<T> {
    /// The same on every axis, however many there are.
    pub const fn all(value: T) -> PerAxis<T> {
        PerAxis { count: None, values: [value; MOST] }
    }
    /// How many were listed; `None` for one value that stands for all.
    pub fn count(&self) -> Option<usize> {
        self.count
    }
    /// The values for this many axes.
    ///
    /// # Errors
    /// Another number is listed, or more than 8; the text calls the values `what`.
    pub fn over(&self, axes: usize, what: &str) -> Result<Vec<T>, Problem> {
        match self.count {
            None => Ok(vec![self.values[0]; axes]),
            Some(n) if n == axes && n <= MOST => Ok(self.values[..n].to_vec()),
            Some(n) if n == axes => Err(Problem::argument(format!("{n} values as {what}; at most {MOST} are kept"))),
            Some(n) => Err(Problem::argument(format!("{n} values as {what} for {axes} axes"))),
        }
    }
}

impl<T: Copy + Default> PerAxis<T> {
    /// One for each axis, first axis first.
    pub fn each(list: &[T]) -> PerAxis<T> {
        let mut values = [T::default(); MOST];
        for (to, from) in values.iter_mut().zip(list) {
            *to = *from;
        }
        PerAxis { count: Some(list.len()), values }
    }
}

/// Numbers, and lists of them, that become values of one type.
macro_rules! forms {
    ($($from:ty => $to:ty: $make:expr;)*) => {$(
        impl From<$from> for PerAxis<$to> {
            fn from(value: $from) -> Self {
                PerAxis::all($make(value))
            }
        }
        lists! { $from => $to: $make }
    )*};
}
macro_rules! lists {
    ($from:ty => $to:ty: $make:expr) => {
        impl From<&[$from]> for PerAxis<$to> {
            fn from(list: &[$from]) -> Self {
                PerAxis::each(&list.iter().copied().map($make).collect::<Vec<$to>>())
            }
        }
        impl<const N: usize> From<[$from; N]> for PerAxis<$to> {
            fn from(list: [$from; N]) -> Self {
                PerAxis::from(&list[..])
            }
        }
        impl<const N: usize> From<&[$from; N]> for PerAxis<$to> {
            fn from(list: &[$from; N]) -> Self {
                PerAxis::from(&list[..])
            }
        }
        impl From<Vec<$from>> for PerAxis<$to> {
            fn from(list: Vec<$from>) -> Self {
                PerAxis::from(&list[..])
            }
        }
        impl From<&Vec<$from>> for PerAxis<$to> {
            fn from(list: &Vec<$from>) -> Self {
                PerAxis::from(&list[..])
            }
        }
    };
}
forms! {
    usize => usize: |n| n;
    f64 => f64: |x| x;
    usize => (i64, i64): |n| (counted(n), counted(n));
    i64 => (i64, i64): |n| (n, n);
    i32 => (i64, i64): |n: i32| (i64::from(n), i64::from(n));
}
lists! { (usize, usize) => (i64, i64): |(a, b)| (counted(a), counted(b)) }
lists! { (i64, i64) => (i64, i64): |pair| pair }
lists! { (i32, i32) => (i64, i64): |(a, b): (i32, i32)| (i64::from(a), i64::from(b)) }

/// A count as every op checks it: one that is too large stays so.
fn counted(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::PerAxis;

    #[test]
    fn one_value_stands_for_all_and_a_list_for_as_many_axes() {
        let all: PerAxis<usize> = 2.into();
        assert_eq!((all.over(3, "strides").unwrap(), all.count()), (vec![2, 2, 2], None));
        let each: PerAxis<usize> = [2, 1].into();
        assert_eq!((each.over(2, "strides").unwrap(), each.count()), (vec![2, 1], Some(2)));
        assert_eq!(each.over(3, "strides").unwrap_err().to_string(), "2 values as strides for 3 axes");
        let many = PerAxis::each(&[1usize; 9]);
        assert_eq!(many.over(9, "strides").unwrap_err().to_string(), "9 values as strides; at most 8 are kept");
    }

    #[test]
    fn padding_is_written_as_numbers_or_as_pairs() {
        let of = |p: PerAxis<(i64, i64)>| p.over(2, "padding").unwrap();
        assert_eq!(of(1.into()), [(1, 1), (1, 1)]);
        assert_eq!(of([1, -2].into()), [(1, 1), (-2, -2)]);
        assert_eq!(of([(1, 2), (0, -3)].into()), [(1, 2), (0, -3)]);
        assert_eq!(of(usize::MAX.into())[0], (i64::MAX, i64::MAX));
    }
}
