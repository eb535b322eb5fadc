//! Records.

use super::*;

#[tokio::test]
async fn a_record_is_changed_by_who_knows_its_revision() {
    let mut clients = clients().await;
    let set = |expected_revision, value: &str| v1::CompareAndSetRequest {
        key: "r".into(),
        value: value.to_owned().into(),
        expected_revision,
    };
    let get = || v1::GetRecordRequest { key: "r".into() };
    let missing = clients.records.get_record(get()).await.unwrap_err();
    assert_eq!((missing.code(), reason(&missing)), (Code::NotFound, "NOT_FOUND".into()));
    let lost = clients.records.compare_and_set(set(3, "x")).await.unwrap_err();
    assert_eq!((lost.code(), reason(&lost)), (Code::Aborted, "CAS_CONFLICT".into()));
    assert_eq!(metadata(&lost, "key"), "r");
    assert_eq!(metadata(&lost, "expected_revision"), "3");

    assert_eq!(
        clients.records.compare_and_set(set(0, "a")).await.unwrap().into_inner().revision,
        1
    );
    assert_eq!(
        clients.records.compare_and_set(set(1, "b")).await.unwrap().into_inner().revision,
        2
    );
    let record = clients.records.get_record(get()).await.unwrap().into_inner().record.unwrap();
    assert_eq!((&record.value[..], record.revision), (&b"b"[..], 2));
    let delete = || v1::DeleteRecordRequest { key: "r".into(), expected_revision: 2 };
    clients.records.delete_record(delete()).await.unwrap();
    let twice = clients.records.delete_record(delete()).await.unwrap_err();
    assert_eq!(reason(&twice), "CAS_CONFLICT");
    assert_eq!(
        clients.records.compare_and_set(set(0, "c")).await.unwrap().into_inner().revision,
        3
    );

    for key in ["p/1", "p/2", "p/3", "q"] {
        let set = v1::CompareAndSetRequest { key: key.into(), ..set(0, "x") };
        clients.records.compare_and_set(set).await.unwrap();
    }
    let list = |prefix: &str, page_size, page_token: &str| v1::ListRecordsRequest {
        prefix: prefix.into(),
        page_size: Some(page_size),
        page_token: page_token.into(),
    };
    let first = clients.records.list_records(list("p/", 2, "")).await.unwrap().into_inner();
    let token = first.next_page_token;
    let next = clients.records.list_records(list("p/", 2, &token)).await.unwrap().into_inner();
    let keys: Vec<_> = first.records.iter().chain(&next.records).map(|it| &it.key[..]).collect();
    assert_eq!((keys, next.next_page_token.as_str()), (vec!["p/1", "p/2", "p/3"], ""));
    let elsewhere = clients.records.list_records(list("q", 2, &token)).await.unwrap_err();
    assert_eq!(reason(&elsewhere), "CURSOR_BINDING_MISMATCH");
    for size in [0, -1, i32::MIN] {
        let page = clients.records.list_records(list("", size, "")).await.unwrap().into_inner();
        assert_eq!(page, v1::ListRecordsResponse::default());
    }
}
