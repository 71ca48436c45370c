//! What Kubernetes promises and we rely on, as cases that any API server can be put to: the real one and the
//! embedded one. Where they differ, the embedded one is wrong.
//!
//! `for_each_case!` hands every case to a macro of the target, which makes a test of it.

pub mod access;
pub mod apply;
pub mod lifecycle;
pub mod lists;
pub mod watches;
pub mod world;
pub mod writes;

/// Calls `$test!(module::case)` for every case that needs nothing but a world.
macro_rules! for_each_case {
    ($test:ident) => {
        $test!(lists::pages_are_complete_and_of_one_moment);
        $test!(lists::a_page_says_how_many_are_left);
        $test!(lists::a_continue_token_that_is_none_is_refused);
        $test!(lists::label_selectors_choose);
        $test!(lists::field_selectors_choose);
        $test!(lists::metadata_alone_can_be_had);
        $test!(lists::a_list_without_a_version_is_of_now);
        $test!(lists::items_of_a_list_are_sorted_and_carry_no_kind);
        $test!(watches::a_watch_tells_what_happens_after_its_version);
        $test!(watches::a_watch_resumes_without_loss);
        $test!(watches::what_leaves_the_selection_is_deleted_and_what_enters_is_added);
        $test!(watches::version_zero_gives_the_present_first);
        $test!(watches::a_watch_ends_at_its_time_with_a_bookmark_before);
        $test!(watches::a_list_can_be_streamed);
        $test!(watches::streaming_a_list_needs_its_parameters_together);
        $test!(writes::what_is_made_gets_an_identity);
        $test!(writes::generated_names_are_different);
        $test!(writes::a_second_one_of_the_name_is_refused);
        $test!(writes::what_is_not_there_is_not_found);
        $test!(writes::a_stale_write_conflicts);
        $test!(writes::a_write_that_changes_nothing_keeps_the_version);
        $test!(writes::a_dry_run_changes_nothing);
        $test!(writes::a_merge_patch_sets_and_removes);
        $test!(writes::a_json_patch_is_all_or_nothing);
        $test!(writes::a_strategic_patch_merges_lists_by_key);
        $test!(writes::deleting_can_ask_for_the_one_it_means);
        $test!(writes::a_collection_is_deleted_by_selector);
        $test!(writes::what_is_invalid_is_told_field_by_field);
        $test!(writes::what_cannot_be_read_is_a_bad_request);
        $test!(apply::applying_makes_and_remembers_who);
        $test!(apply::another_manager_conflicts_until_it_forces);
        $test!(apply::what_nobody_applies_any_more_is_removed);
        $test!(apply::a_plain_write_takes_ownership);
        $test!(apply::lists_with_keys_are_shared);
        $test!(apply::applying_needs_a_manager);
        $test!(lifecycle::a_finalizer_holds_what_is_deleted);
        $test!(lifecycle::a_namespace_takes_its_contents_along);
        $test!(lifecycle::what_is_owned_goes_with_its_owner);
        $test!(lifecycle::an_owner_that_never_was_takes_its_children);
        $test!(lifecycle::the_generation_counts_changes_of_the_spec);
        $test!(lifecycle::status_and_spec_are_written_apart);
        $test!(lifecycle::scale_is_a_view_of_its_own);
        $test!(access::a_token_is_recognised_and_a_false_one_is_not);
        $test!(access::a_token_is_good_for_its_audience_only);
        $test!(access::a_token_for_nobody_is_refused);
        $test!(access::who_may_not_is_refused_and_told_what);
        $test!(access::a_false_token_is_not_let_in);
        $test!(access::one_can_ask_what_one_may);
    };
}
pub(crate) use for_each_case;
