//! The buckets of ages in `FlowAges`: a time enters, the number of its bucket leaves, and back.

/// Buckets that double the age.
const PER_DOUBLING: f64 = 4.0;

/// The largest bucket: about 50 years.
pub const MAX_BUCKET: u32 = 163;

/// The bucket of an age in milliseconds: b holds ages from 2^(b/4) to below 2^((b+1)/4) ms. Bucket 0 begins at 0.
pub fn bucket(age_ms: u64) -> u32 {
    if age_ms < 2 {
        return 0;
    }
    // Not above MAX_BUCKET, so it fits.
    let guess = ((age_ms as f64).log2() * PER_DOUBLING).min(f64::from(MAX_BUCKET)) as u32;
    // The logarithm may be off by its last digit at a bound.
    if guess < MAX_BUCKET && lower_bound_ms(guess + 1) <= age_ms as f64 {
        guess + 1
    } else if lower_bound_ms(guess) > age_ms as f64 {
        guess - 1
    } else {
        guess
    }
}

/// The least age of a bucket, in milliseconds.
pub fn lower_bound_ms(bucket: u32) -> f64 {
    if bucket == 0 {
        0.0
    } else {
        (f64::from(bucket) / PER_DOUBLING).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_lies_within_the_bounds_of_its_bucket() {
        let ages = (0..2_000).chain((11..40).flat_map(|power| {
            let power = 1_u64 << power;
            [power - 1, power, power + 1]
        }));
        for age in ages {
            let bucket = bucket(age);
            assert!(lower_bound_ms(bucket) <= age as f64, "{age} is below bucket {bucket}");
            assert!(
                (age as f64) < lower_bound_ms(bucket + 1),
                "{age} is above bucket {bucket}"
            );
        }
    }

    #[test]
    fn no_age_is_beyond_the_last_bucket() {
        assert_eq!(bucket(u64::MAX), MAX_BUCKET);
        assert_eq!(bucket(0), 0);
    }
}
